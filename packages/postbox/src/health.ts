/*
 * The seam for those who watch: what is wrong with a box, by name, with its figures and with what to do about it.
 */

/** The limits of every store; some have options beside these. */
export interface HealthOptions {
  /** Defaults to all of them. */
  readonly box?: string;
  /** How old what is to be sent may get, and how late what is scheduled. Defaults to 60,000. */
  readonly unsentAgeMs?: number;
  /** For how long a message may be tried again and again. Defaults to 900,000. */
  readonly retriedForMs?: number;
  /** How many messages may be parked. At most 1,000,000. Defaults to 0. */
  readonly parked?: number;
  /** How long to look at most; then that is the problem. Defaults to 5,000. */
  readonly timeoutMs?: number;
}

/** What every problem says, whatever the store. */
export interface AnyProblem {
  /** Stable: one of `HealthProblem`, or of those that only this store has. */
  readonly code: string;
  /** With an error, the store is not healthy. */
  readonly severity: "error" | "warning";
  /** What is wrong, why, and what to do. It may name messages, sessions and users of the database. */
  readonly text: string;
  /** Which box it is about. Absent where it is about more than one. */
  readonly box?: string;
}

/** What can be wrong with any store, or with the connections to a broker. */
export type HealthProblem = Pick<AnyProblem, "text" | "box"> &
  (
    | {
        readonly code: "unreachable";
        readonly severity: "error";
        /** The look took longer than `timeoutMs`. What it had found by then is told, too. */
        readonly timedOut: boolean;
      }
    /** The server does not know the user, the password or the database. */
    | { readonly code: "store-refused"; readonly severity: "error" }
    /** The database answers, but not to this: the role lacks a right, say. */
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
        /** For how long it could have been sent: since it was appended or, of a waiting one, since its hold was due. */
        readonly ageMs: number;
        readonly status: "pending" | "waiting";
        readonly id: string;
        readonly topic: string;
      }
    | {
        /**
         * It fails each time, or waits for a queue (told after `unsentAgeMs` already). What waits behind it, of its
         * key, is not told by itself.
         */
        readonly code: "retried-too-long";
        /** An error where it has waited for a queue for longer than `retriedForMs`. */
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
    /** Handlers of a consumer of `createMessaging` have run for longer than its `slowAfterMs`. */
    | {
        readonly code: "handlers-slow";
        /** An error where no other message is handled any more. */
        readonly severity: "error" | "warning";
        readonly consumer: string;
        readonly count: number;
        /** How many handlers of the consumer may run at a time in this process. */
        readonly concurrency: number;
        /** For how long the oldest has run, and with which message. */
        readonly runningMs: number;
        readonly id: string;
        readonly type?: string;
      }
  );

export interface Health<Problem extends AnyProblem = HealthProblem> {
  /** There is no error among the problems. */
  readonly healthy: boolean;
  /** Errors first. */
  readonly problems: readonly Problem[];
}
