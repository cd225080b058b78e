import type { Store } from "postbox";

/** What a store can do beyond what every store must. A claimed one is tested, any other is shown as skipped. */
export interface StoreFeatures {
  /** Several transactions can be open at once. */
  readonly concurrentTransactions: boolean;
  /** Positions are given before commit, so that a row may appear below one that was found. Without it, boxes are `inCommitOrder`. */
  readonly lateCommits: boolean;
  /** It has a schema, which `migrate()` makes. */
  readonly migrations: boolean;
  /** `transaction(work, { isolation })` is honoured. */
  readonly isolationLevels: boolean;
  /** A failed statement makes the whole transaction roll back, even when its error is swallowed. */
  readonly abortsOnError: boolean;
  /** It can tell a transaction of another database from its own. */
  readonly foreignTransactions: boolean;
  /** Several processes can work on the same data, and one of them can die. */
  readonly processes: boolean;
}

/** A store with connections of its own, as a process has. */
export interface StoreProcess<Tx> {
  readonly store: Store<Tx>;
  /** As when the process dies: its connections are cut, so its open transactions roll back. */
  kill(): Promise<void>;
}

/** One store on empty data, and the means to look at it from outside. */
export interface StoreHarness<Tx> {
  readonly store: Store<Tx>;
  /** Another store object on the same data, as another process has. */
  another(): Store<Tx>;
  /** Writes into a table of the user's own within `tx`. */
  effect(tx: Tx, name: string): Promise<void>;
  /** What is committed there, in any order. */
  effects(): Promise<readonly string[]>;
  /** Lets the database's time move on by `ms`: shifts every stored time back, but for those inside a history of failures. */
  advance(ms: number): Promise<void>;
  /** The database's clock, in ms. */
  now(): number;
  /** Ids in order of position, and held keys in any order. */
  contents(box: string): Promise<StoreHarnessContents>;
  /** A hash of everything that is stored: the same while nothing was changed. */
  fingerprint(): Promise<string>;
  /** With `abortsOnError`: makes a statement fail within `tx` and swallows its error. */
  breakTransaction?(tx: Tx): Promise<void>;
  /** With `processes`: starts another one. */
  process?(): Promise<StoreProcess<Tx>>;
  /** What its `purge` needs to remove row by row, so that figures are exact, such as `{ partitions: false }`. Defaults to nothing. */
  readonly rowByRow?: object;
  /** What a user may hand over by mistake instead of a transaction, such as the pool. Defaults to none. */
  impostors?(): readonly unknown[];
  close(): Promise<void>;
}

export interface StoreHarnessContents {
  readonly pending: readonly string[];
  readonly wait: readonly string[];
  readonly holds: readonly string[];
  readonly scheduled: readonly string[];
  readonly parked: readonly { readonly id: string; readonly error: string }[];
  /** What was sent and kept; of an inbox, what was handled. */
  readonly done: readonly string[];
}

/** Of a box with nothing in it. */
export const emptyBox: StoreHarnessContents = { pending: [], wait: [], holds: [], scheduled: [], parked: [], done: [] };

export interface StoreSuiteOptions<Tx> {
  readonly name: string;
  readonly features: StoreFeatures;
  /** Called for every fact: the store must be empty and, where it has a schema, migrated. */
  create(): Promise<StoreHarness<Tx>>;
}
