import type { AnyProblem, HealthOptions, HealthProblem } from "../../health.js";

/*
 * What can be wrong in PostgreSQL only, and its limits.
 */

export interface PostgresHealthOptions extends HealthOptions {
  /** How long a transaction, of anybody, may hold back vacuum. Defaults to 300,000. */
  readonly transactionAgeMs?: number;
  /** How long beforehand partitions of what is done must be there. Defaults to 86,400,000 (a day). */
  readonly partitionsAheadMs?: number;
  /** How large a table may get, with its indexes. Defaults to 10,737,418,240 (10 GiB). */
  readonly tableBytes?: number;
  /** From this size on a table must not be dead space for the most part. Defaults to 104,857,600 (100 MiB). */
  readonly deadSpaceBytes?: number;
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

/** Those that say which error of the server they come from. */
type AnsweredCode = "store-refused" | "unreadable";
type Answered = Extract<HealthProblem, { readonly code: AnsweredCode }>;

/** What `health` of a Postgres store tells: what any store does, and what only PostgreSQL has. */
export type PostgresHealthProblem =
  | Exclude<HealthProblem, Answered>
  | (Answered & { readonly sqlState: string })
  | UpkeepProblem;

/** What only PostgreSQL has. */
export type UpkeepProblem = Pick<AnyProblem, "text" | "box"> &
  (
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
  );
