/**
 * Limits deliveries to one at a time while a message may be crashing its consumer. A quorum queue gives up a message
 * after a number of deliveries without an outcome, and a crash counts against everything that the consumer had
 * prefetched: only a message that was delivered alone is counted alone.
 */
export interface Isolation {
  /** How many messages the broker may deliver at a time. */
  readonly room: number;
  /** Nothing is passed on until everything in the buffer was given back. */
  readonly narrowing: boolean;
  /**
   * A message arrived. After a suspect, as many others as were prefetched with it are delivered alone too: they were
   * returned together.
   */
  arrived(suspect: boolean): void;
  /** Sets the limit that the messages seen so far call for. Returns false if it is unchanged. */
  adjust(): boolean;
  /** Everything in the buffer was given back. */
  emptied(): void;
}

/** For a consumer that prefetches `prefetch` messages, or one at a time. */
export function createIsolation(prefetch: number): Isolation {
  let room = 1;
  /** How many more messages, even without suspicion, have to be delivered one at a time. */
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
