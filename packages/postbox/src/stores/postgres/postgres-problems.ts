import type { AnyProblem, HealthOptions, HealthProblem } from "../../health.js";

/* Problems that only PostgreSQL has, and their limits. */

export interface PostgresHealthOptions extends HealthOptions {
  /** How long a transaction, whoever runs it, may hold back vacuum. Defaults to 300,000. */
  readonly transactionAgeMs?: number;
  /** How far ahead the partitions of sent messages must exist. Defaults to 86,400,000 (a day). */
  readonly partitionsAheadMs?: number;
  /** How large a table may get, including its indexes. Defaults to 10,737,418,240 (10 GiB). */
  readonly tableBytes?: number;
  /** The size from which a table must not be mostly dead space. Defaults to 104,857,600 (100 MiB). */
  readonly deadSpaceBytes?: number;
}

/** What holds back vacuum, as far as the store's role may see it. */
export type VacuumHolder =
  | {
      readonly kind: "transaction";
      readonly pid: number;
      readonly user: string;
      readonly application: string;
      /** This and the next two are absent if the role may not see them; it needs `pg_monitor`. */
      readonly state?: string;
      readonly ageMs?: number;
      /** The start of its last statement, without literals. */
      readonly query?: string;
    }
  | { readonly kind: "prepared transaction"; readonly gid: string; readonly user: string; readonly ageMs: number }
  | { readonly kind: "replication slot"; readonly slot: string; readonly active: boolean; readonly ageMs?: number };

/** An open transaction that has written something. */
export type OrderBlocker = { readonly database: string; readonly user: string; readonly ageMs?: number } & (
  | { readonly kind: "transaction"; readonly pid: number; readonly application: string }
  | { readonly kind: "prepared transaction"; readonly gid: string }
);

/** Codes of problems that carry the server's SQLSTATE. */
type AnsweredCode = "store-refused" | "unreadable";
type Answered = Extract<HealthProblem, { readonly code: AnsweredCode }>;

/** The problems that `health` of a Postgres store reports: those of every store, and those of PostgreSQL only. */
export type PostgresHealthProblem =
  | Exclude<HealthProblem, Answered>
  | (Answered & { readonly sqlState: string })
  | UpkeepProblem;

/** Problems that only PostgreSQL has. */
export type UpkeepProblem = Pick<AnyProblem, "text" | "box"> &
  /** The pool of the store and its transaction library are on different databases. */
  (
    | { readonly code: "databases-differ"; readonly severity: "error" }
    | {
        readonly code: "vacuum-held-back";
        readonly severity: "warning";
        /** What holds vacuum back the most. */
        readonly holder: VacuumHolder;
        /** How many transactions have begun since. */
        readonly transactions: number;
        /** How many others hold it back, too. */
        readonly others: number;
      }
    | {
        /** Relays with `order: "total"` wait for a transaction to end. It may belong to any database of the server. */
        readonly code: "order-blocked";
        readonly severity: "error";
        readonly blocker: OrderBlocker;
      }
    | {
        /** The positions of the box do not grow by one per message, so the order of messages is lost. */
        readonly code: "sequence-altered";
        readonly severity: "error";
        readonly sequence: string;
        /** How many positions a session draws at once; 1 unless it was altered. */
        readonly cache: number;
        readonly increment: number;
        readonly cycles: boolean;
      }
    | {
        readonly code: "partition-missing";
        readonly severity: "warning";
        /** For how long from now partitions exist; 0 if there is none for now. */
        readonly aheadMs: number;
        /** Sent messages currently go to the overflow table. */
        readonly overflowing: boolean;
      }
    | {
        readonly code: "table-heavy";
        readonly severity: "warning";
        readonly table: string;
        /** Includes its indexes, and all partitions of a partitioned table. */
        readonly bytes: number;
        /** The database's estimate. */
        readonly liveRows: number;
        /** True if it is mostly dead space, false if it is just large. */
        readonly dead: boolean;
      }
  );
