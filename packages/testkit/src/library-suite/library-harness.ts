import type { ClientBase } from "pg";
import type { PostgresTestDataOptions } from "../postgres-store-harness.js";

/** A library, as its users use it. */
export interface LibrarySuiteOptions<Tx> extends Omit<PostgresTestDataOptions<Tx>, "impostors"> {
  readonly name: string;
  /** Part of the advice in the error for a wrong handle: the call that returns a right one. */
  readonly rightCall: string;
  /** What a user of this library may pass instead of a transaction. */
  impostors(): readonly unknown[];
  /** Opens a transaction as the library's documentation shows it, without the store. */
  begin<R>(work: (tx: Tx) => Promise<R>): Promise<R>;
  /** Opens a nested transaction, behind a savepoint. Absent if the library has none. */
  nested?<R>(tx: Tx, work: (inner: Tx) => Promise<R>): Promise<R>;
  /** Runs a statement without parameters as the library's documentation shows it. */
  run(tx: Tx, text: string): Promise<unknown>;
  /**
   * The client of `pg` under a transaction, if the library exposes it. Then a statement that is running on it when the
   * transaction's function ends is `not-awaited`. Defaults to none.
   */
  client?(tx: Tx): ClientBase;
}
