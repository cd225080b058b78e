/*
 * The seam for those who watch: what is wrong with a box, by name, with its figures and with what to do about it.
 */

export interface HealthOptions {
  /** Defaults to all of them. */
  readonly box?: string;
  /** How old what is to be sent may get, and how late what is scheduled. Defaults to 60,000. */
  readonly unsentAgeMs?: number;
  /** For how long a message may be tried again and again. Defaults to 900,000. */
  readonly retriedForMs?: number;
  /** How many messages may be parked. At most 1,000,000. Defaults to 0. */
  readonly parked?: number;
  /** How long a transaction, of anybody, may hold back vacuum. Defaults to 300,000. */
  readonly transactionAgeMs?: number;
  /** How long beforehand partitions of what is done must be there. Defaults to 86,400,000 (a day). */
  readonly partitionsAheadMs?: number;
  /** How large a table may get, with its indexes. Defaults to 10,737,418,240 (10 GiB). */
  readonly tableBytes?: number;
  /** From this size on a table must not be dead space for the most part. Defaults to 104,857,600 (100 MiB). */
  readonly deadSpaceBytes?: number;
  /** How long to look at most; then that is the problem. Defaults to 5,000. */
  readonly timeoutMs?: number;
}

/** Who holds back vacuum, as far as the store's role may see it. */
export type VacuumHolder =
  | {
      readonly kind: "transaction";
      readonly pid: number;
      readonly user: string;
      readonly application: string;
      /** Absent, as the next two, where the role may not see it: it needs `pg_monitor`. */
      readonly state?: string;
      readonly ageMs?: number;
      /** The beginning of its last statement, without what stands in quotes. */
      readonly query?: string;
    }
  | { readonly kind: "prepared transaction"; readonly gid: string; readonly user: string; readonly ageMs: number }
  | { readonly kind: "replication slot"; readonly slot: string; readonly active: boolean; readonly ageMs?: number };

/** A transaction that has written something and not ended. */
export type OrderBlocker = { readonly database: string; readonly user: string; readonly ageMs?: number } & (
  | { readonly kind: "transaction"; readonly pid: number; readonly application: string }
  | { readonly kind: "prepared transaction"; readonly gid: string }
);

/**
 * Something that is wrong. Codes are stable; `text` says what, why and what to do, for whoever has to do it: it may name
 * messages, sessions and users of the database.
 */
export type HealthProblem = {
  readonly text: string;
  /** Which box it is about. Absent where it is about more than one. */
  readonly box?: string;
} & (
  | {
      readonly code: "unreachable";
      readonly severity: "error";
      /** The look took longer than `timeoutMs`. What it had found by then is told, too. */
      readonly timedOut: boolean;
    }
  /** The server does not know the user, the password or the database. */
  | { readonly code: "store-refused"; readonly severity: "error"; readonly sqlState: string }
  /** The database answers, but not to this: the role lacks a right, say. */
  | { readonly code: "unreadable"; readonly severity: "error"; readonly sqlState: string }
  | { readonly code: "schema-missing"; readonly severity: "error" }
  | {
      readonly code: "schema-outdated" | "schema-newer";
      readonly severity: "error";
      readonly version: number;
      readonly needed: number;
    }
  | {
      readonly code: "unsent-too-old";
      readonly severity: "error";
      /** For how long it could have been sent: since it was appended or, of a waiting one, since its hold was due. */
      readonly ageMs: number;
      readonly status: "pending" | "waiting";
      readonly id: string;
      readonly topic: string;
    }
  | {
      /** It fails each time, or waits for a queue. What waits behind it, of its key, is not told by itself. */
      readonly code: "retried-too-long";
      readonly severity: "warning";
      /** How long ago it was appended. */
      readonly ageMs: number;
      readonly attempts: number;
      readonly lastError: string;
      readonly id: string;
      readonly topic: string;
    }
  | {
      readonly code: "schedule-late";
      readonly severity: "error";
      readonly lateMs: number;
      readonly id: string;
      readonly topic: string;
    }
  | {
      readonly code: "lanes-unowned";
      /** An error where there is something to send in one of them. */
      readonly severity: "error" | "warning";
      readonly lanes: number;
      /** Relays that live. */
      readonly relays: number;
    }
  | {
      readonly code: "relays-idle";
      readonly severity: "warning";
      readonly relays: number;
      readonly idle: number;
      /** The first ten of the idle ones, by name. */
      readonly owners: readonly string[];
    }
  | { readonly code: "paused"; readonly severity: "warning"; readonly since: Date }
  | {
      readonly code: "parked";
      readonly severity: "warning";
      readonly count: number;
      /** There are more, which were not counted. */
      readonly more: boolean;
    }
  | {
      readonly code: "held-for-good";
      readonly severity: "warning";
      readonly count: number;
      readonly more: boolean;
      /** Ten of them. */
      readonly keys: readonly string[];
    }
  | {
      readonly code: "vacuum-held-back";
      readonly severity: "warning";
      /** The one that holds back most. */
      readonly holder: VacuumHolder;
      /** How many transactions have begun since. */
      readonly transactions: number;
      /** How many others do so, too. */
      readonly others: number;
    }
  | {
      /** Relays with `order: "total"` wait for a transaction to end, of any database of the server. */
      readonly code: "order-blocked";
      readonly severity: "error";
      readonly blocker: OrderBlocker;
    }
  | {
      /** The positions of the box do not grow by one from message to message: the order of messages is lost. */
      readonly code: "sequence-altered";
      readonly severity: "error";
      readonly sequence: string;
      /** How many positions a session draws at once; 1 unless someone has changed it. */
      readonly cache: number;
      readonly increment: number;
      readonly cycles: boolean;
    }
  | {
      readonly code: "partition-missing";
      readonly severity: "warning";
      /** For how long from now there are partitions; 0 where there is none for now. */
      readonly aheadMs: number;
      /** What is done goes to the overflow table at present. */
      readonly overflowing: boolean;
    }
  | {
      readonly code: "table-heavy";
      readonly severity: "warning";
      readonly table: string;
      /** With its indexes; of a partitioned one, all partitions. */
      readonly bytes: number;
      /** As the database estimates it. */
      readonly liveRows: number;
      /** It is dead space for the most part; else it is just large. */
      readonly dead: boolean;
    }
  /** A sender or receiver of `createMessaging` has no connection, or one on which the broker takes nothing. */
  | {
      readonly code: "transport-down" | "transport-blocked";
      readonly severity: "error";
      readonly transport: string;
      readonly end: "sender" | "receiver";
      readonly since: Date;
      /** Of a receiver: whose it is. */
      readonly consumer?: string;
    }
);

export interface Health {
  /** There is no error among the problems. */
  readonly healthy: boolean;
  /** Errors first. */
  readonly problems: readonly HealthProblem[];
}
