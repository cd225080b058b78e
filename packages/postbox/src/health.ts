/*
 * The seam for monitoring: the problems of a box, each with a code, its figures, and what to do.
 */

/** The limits of every store; some stores have more. */
export interface HealthOptions {
  /** Defaults to all boxes. */
  readonly box?: string;
  /** How old a message that is due may get, and how late a scheduled one. Defaults to 60,000. */
  readonly unsentAgeMs?: number;
  /** How long a message may be retried. Defaults to 900,000. */
  readonly retriedForMs?: number;
  /** How many messages may be parked. At most 1,000,000. Defaults to 0. */
  readonly parked?: number;
  /** How long the checks may take; taking longer is a problem of its own. Defaults to 5,000. */
  readonly timeoutMs?: number;
}

/** What every problem has, for every store. */
export interface AnyProblem {
  /** Stable: one of `HealthProblem`'s codes, or of the store's own. */
  readonly code: string;
  /** The store is not healthy if it has an error. */
  readonly severity: "error" | "warning";
  /** What is wrong, why, and what to do. It may name messages, sessions and users of the database. */
  readonly text: string;
  /** The box of the problem. Absent if it affects several. */
  readonly box?: string;
}

/** The problems of any store, and of the connections to a broker. */
export type HealthProblem = Pick<AnyProblem, "text" | "box"> &
  (
    | {
        readonly code: "unreachable";
        readonly severity: "error";
        /** The checks took longer than `timeoutMs`. Problems that were found by then are reported too. */
        readonly timedOut: boolean;
      }
    /** The server refuses the user, the password or the database. */
    | { readonly code: "store-refused"; readonly severity: "error" }
    /** The database answers other statements but not this one: the role lacks a right, for example. */
    | { readonly code: "unreadable"; readonly severity: "error" }
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
        /**
         * How long it could have been sent: since it was appended or, for a waiting message, since its hold was due.
         */
        readonly ageMs: number;
        readonly status: "pending" | "waiting";
        readonly id: string;
        readonly topic: string;
      }
    | {
        /**
         * It fails each time, or waits for a queue, which is reported after `unsentAgeMs` already. Messages of its key
         * behind it are not reported.
         */
        readonly code: "retried-too-long";
        /** An error if it has waited for a queue for longer than `retriedForMs`. */
        readonly severity: "error" | "warning";
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
        /** An error if messages wait there and no relay is running; a warning if one is. */
        readonly severity: "error" | "warning";
        readonly lanes: number;
        /** Running relays. */
        readonly relays: number;
      }
    | {
        readonly code: "relays-idle";
        readonly severity: "warning";
        readonly relays: number;
        readonly idle: number;
        /** The first ten idle relays, by name. */
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
        /** The first ten. */
        readonly keys: readonly string[];
      }
    /** A sender or receiver of `createMessaging` has no connection, or its broker accepts nothing on it. */
    | {
        readonly code: "transport-down" | "transport-blocked";
        readonly severity: "error";
        readonly transport: string;
        readonly end: "sender" | "receiver";
        readonly since: Date;
        /** The consumer of a receiver. */
        readonly consumer?: string;
      }
    /** Handlers of a consumer of `createMessaging` have run for longer than its `slowAfterMs`. */
    | {
        readonly code: "handlers-slow";
        /** An error if this process handles no other message of the consumer. */
        readonly severity: "error" | "warning";
        readonly consumer: string;
        readonly count: number;
        /** How many handlers of the consumer may run at a time in this process. */
        readonly concurrency: number;
        /** How long the oldest of them has run, and its message. */
        readonly runningMs: number;
        readonly id: string;
        readonly type?: string;
      }
  );

/** The answer of `health()`: every problem that was found, or none. */
export interface Health<Problem extends AnyProblem = HealthProblem> {
  /** Whether none of the problems is an error. */
  readonly healthy: boolean;
  /** Errors first. */
  readonly problems: readonly Problem[];
}
