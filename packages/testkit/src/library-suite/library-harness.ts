import type { ClientBase } from "pg";
import type { PostgresTestDataOptions } from "../postgres-store-harness.js";

/** A library, in its users' own words. */
export interface LibrarySuiteOptions<Tx> extends Omit<PostgresTestDataOptions<Tx>, "impostors"> {
  readonly name: string;
  /** Part of the advice that a wrong handle gets: the call that gives a right one. */
  readonly rightCall: string;
  /** What a user of this library may hand over instead of a transaction. */
  impostors(): readonly unknown[];
  /** Opens a transaction as the library's documentation has it, without the store. */
  begin<R>(work: (tx: Tx) => Promise<R>): Promise<R>;
  /** The same inside of another one, behind a savepoint. Absent where the library has no such thing. */
  nested?<R>(tx: Tx, work: (inner: Tx) => Promise<R>): Promise<R>;
  /** Runs a statement without parameters as the library's documentation has it. */
  run(tx: Tx, text: string): Promise<unknown>;
  /**
   * The client of `pg` under a transaction, where the library shows it: then a statement that is under way on it when
   * its function ends is `not-awaited`. Defaults to none.
   */
  client?(tx: Tx): ClientBase;
}
