/**
 * Takes one message at a time where one of them may crash its consumer. A quorum queue gives a message up after so many
 * deliveries without an outcome, and a crash counts for everything that the consumer had prefetched: only a message
 * that was alone is counted alone.
 */
export interface Isolation {
  /** How many messages the broker may send at a time. */
  readonly room: number;
  /** Nothing is handed over until everything that is buffered was given back. */
  readonly narrowing: boolean;
  /**
   * A message came. After a suspect, as many others as were prefetched with it come alone as well: they were returned
   * together.
   */
  arrived(suspect: boolean): void;
  /** Changes the room to what the messages that came ask for. False: it is that already. */
  adjust(): boolean;
  /** Everything that was buffered was given back. */
  emptied(): void;
}

/** For a consumer of `prefetch` messages, or of one at a time. */
export function createIsolation(prefetch: number): Isolation {
  let room = 1;
  /** How many more that are not suspect have to come one at a time. */
  let alone = 1;
  let narrowing = false;
  return {
    get room() {
      return room;
    },
    get narrowing() {
      return narrowing;
    },
    arrived(suspect) {
      if (suspect) {
        alone = prefetch;
        if (room > 1) narrowing = true;
      } else if (alone > 0) alone--;
    },
    adjust() {
      const wanted = alone > 0 ? 1 : prefetch;
      if (wanted === room) return false;
      room = wanted;
      return true;
    },
    emptied() {
      narrowing = false;
    },
  };
}
