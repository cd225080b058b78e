/*
 * What happened to messages, as the database, the broker and the user's own tables saw it, without trusting the
 * library. The simulation and the chaos tests on real servers record it; `checkHistory` checks it.
 */

/** A message as it was seen. */
export interface Sighting {
  readonly id: string;
  readonly key?: string;
  /** A digest of everything that must arrive as it was sent: data, type, headers … Equal only if all of that is. */
  readonly digest: string;
}

/** One event. A history lists events in the order in which they happened. */
export type HistoryEvent =
  /** A transaction has appended a message to a box: its position is drawn. */
  | { readonly what: "appended"; readonly tx: string; readonly box: string; readonly message: Sighting }
  /** The database has committed or rolled back the transaction, whatever it told the client. */
  | { readonly what: "committed"; readonly tx: string }
  | { readonly what: "rolled-back"; readonly tx: string }
  /** The broker has accepted a message from this box's relays, whatever it told them. */
  | { readonly what: "accepted"; readonly box: string; readonly message: Sighting }
  /** A message was delivered to a consumer. */
  | { readonly what: "delivered"; readonly consumer: string; readonly message: Sighting }
  /** A handler has written its effect within `tx`. The effect counts when `tx` commits. */
  | { readonly what: "effect"; readonly tx: string; readonly consumer: string; readonly id: string }
  /** A relay has parked a message of this box, and that is stored. */
  | { readonly what: "parked"; readonly box: string; readonly id: string }
  /** A consumer has set a message aside. `outright`: without an attempt, and so at any time, whatever its order. */
  | { readonly what: "refused"; readonly consumer: string; readonly id: string; readonly outright?: boolean }
  /**
   * `retried`: an operator puts a parked message into its box again. `discarded`: an operator removes it, or a relay
   * drops it. `replayed`: an operator puts a kept message into its box again.
   */
  | { readonly what: "retried" | "discarded" | "replayed"; readonly box: string; readonly id: string }
  /** An operator releases a key that a parked message held. */
  | { readonly what: "released"; readonly box: string; readonly key: string }
  /** An owner has changed rows of a lane under `epoch`, when the lane's epoch was `current`. */
  | {
      readonly what: "wrote";
      readonly box: string;
      readonly lane: number;
      readonly epoch: number;
      readonly current: number;
    }
  /** A fault was injected: from now on messages may be sent and delivered more than once. */
  | { readonly what: "fault"; readonly kind: string }
  /** The contents of a box after all faults were healed and enough time had passed. The last event of each box. */
  | { readonly what: "rested"; readonly box: string; readonly contents: RestedBox };

/** The ids in each part of a box. */
export interface RestedBox {
  readonly pending: readonly string[];
  readonly wait: readonly string[];
  readonly parked: readonly string[];
  readonly done: readonly string[];
}

/** What was promised. */
export interface Promises {
  readonly boxes: readonly BoxPromise[];
}

/** What a history must hold for one box. */
export interface BoxPromise {
  readonly box: string;
  /** `key`: messages of one key are sent in the order of their appends; `total`: all messages are. */
  readonly order: "key" | "total" | "none";
  /** Whether overlapping transactions are sent in the order of their commits, too. Defaults to false. */
  readonly strictKeyOrder?: boolean;
  /** Whether sent messages are kept in `done`. Defaults to false. */
  readonly keep?: boolean;
  /** Whether a parked message holds the later ones of its key. Defaults to false. */
  readonly holdParked?: boolean;
  /** The consumers that handle the messages of this box, once each. */
  readonly consumers: readonly ConsumerPromise[];
}

/** What a history must hold for one consumer. */
export interface ConsumerPromise {
  readonly consumer: string;
  /** Whether the effects of one key happen in the order of `order`, too. Defaults to false. */
  readonly effectsInOrder?: boolean;
  /** Which messages of the box the consumer handles. Defaults to all. */
  wants?(message: Sighting): boolean;
}
