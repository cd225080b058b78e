/*
 * What happened to messages, seen from outside: by the database, the broker and the user's own tables, and not by the
 * library. Recorded by the simulation and by chaos tests on real servers, judged by `checkHistory`.
 */

/** A message as somebody saw it. */
export interface Sighting {
  readonly id: string;
  readonly key?: string;
  /** Of everything that must arrive as it was sent: data, type, headers … Equal only when those are. */
  readonly digest: string;
}

/** One thing that happened. A history lists them in the order in which they did. */
export type HistoryEvent =
  /** A transaction has appended a message to a box: its position is drawn. */
  | { readonly what: "appended"; readonly tx: string; readonly box: string; readonly message: Sighting }
  /** The database has committed it, or rolled it back, whatever the one who asked for it was told. */
  | { readonly what: "committed"; readonly tx: string }
  | { readonly what: "rolled-back"; readonly tx: string }
  /** The broker has taken a message from this box's relays, whatever these were told. */
  | { readonly what: "accepted"; readonly box: string; readonly message: Sighting }
  /** A consumer was handed a message. */
  | { readonly what: "delivered"; readonly consumer: string; readonly message: Sighting }
  /** A handler has written its effect within `tx`: it counts when that commits. */
  | { readonly what: "effect"; readonly tx: string; readonly consumer: string; readonly id: string }
  /** A relay has set a message of this box aside: stored, not only meant. */
  | { readonly what: "parked"; readonly box: string; readonly id: string }
  /** A consumer has set a message aside; `outright`: without trying it, and so at whatever time it comes. */
  | { readonly what: "refused"; readonly consumer: string; readonly id: string; readonly outright?: boolean }
  /**
   * An operator: a parked message goes into its box again · is given up, also by a relay that drops it · a kept one
   * goes into its box again.
   */
  | { readonly what: "retried" | "discarded" | "replayed"; readonly box: string; readonly id: string }
  /** An operator lets a key go on that a parked message held. */
  | { readonly what: "released"; readonly box: string; readonly key: string }
  /** An owner has changed rows of a lane under `epoch`, when the lane's own was `current`. */
  | {
      readonly what: "wrote";
      readonly box: string;
      readonly lane: number;
      readonly epoch: number;
      readonly current: number;
    }
  /** Something was made to go wrong: from now on a message may be sent, and handed over, more than once. */
  | { readonly what: "fault"; readonly kind: string }
  /** The world was healed, and given time: what is in a box then. The last event of each box. */
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

export interface BoxPromise {
  readonly box: string;
  /** `key`: of one key, `total`: of all messages, those go first that were appended first. */
  readonly order: "key" | "total" | "none";
  /** Whether transactions that overlap keep the order of their commits too. Defaults to false. */
  readonly strictKeyOrder?: boolean;
  /** Whether what was sent is kept in `done`. Defaults to false. */
  readonly keep?: boolean;
  /** Whether a parked message holds the later ones of its key. Defaults to false. */
  readonly holdParked?: boolean;
  /** Who handles the messages of this box, each once. */
  readonly consumers: readonly ConsumerPromise[];
}

export interface ConsumerPromise {
  readonly consumer: string;
  /** Whether the effects of one key happen in the order of `order` too. Defaults to false. */
  readonly effectsInOrder?: boolean;
  /** Which messages of the box are for it. Defaults to all. */
  wants?(message: Sighting): boolean;
}
