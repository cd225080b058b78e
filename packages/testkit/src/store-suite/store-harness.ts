import type { Store } from "postbox";

/**
 * What a store can do beyond what every store must. Claimed features are tested; the facts of all others are shown as
 * skipped.
 */
export interface StoreFeatures {
  /** Several transactions can be open at once. */
  readonly concurrentTransactions: boolean;
  /**
   * Positions are given before commit, so a row may appear below one that was found. Without this feature, boxes are
   * `inCommitOrder`.
   */
  readonly lateCommits: boolean;
  /** It has a schema, which `migrate()` creates. */
  readonly migrations: boolean;
  /** `transaction(work, { isolation })` takes effect. */
  readonly isolationLevels: boolean;
  /** A failed statement rolls back the whole transaction, even if its error is swallowed. */
  readonly abortsOnError: boolean;
  /** It can distinguish transactions of another database from its own. */
  readonly foreignTransactions: boolean;
  /** Several processes can work on the same data, and each of them can crash. */
  readonly processes: boolean;
}

/** A store with its own connections, like one in a process of its own. */
export interface StoreProcess<Tx> {
  readonly store: Store<Tx>;
  /** Acts like a crash of the process: its connections are cut, so its open transactions roll back. */
  kill(): Promise<void>;
}

/** One store on empty data, and the means to inspect it from outside. */
export interface StoreHarness<Tx> {
  readonly store: Store<Tx>;
  /** Another store object on the same data, as in another process. */
  another(): Store<Tx>;
  /** Writes into a table of the user within `tx`. */
  effect(tx: Tx, name: string): Promise<void>;
  /** The committed rows of that table, in any order. */
  effects(): Promise<readonly string[]>;
  /** Advances the database's time by `ms`: shifts every stored time back, except those inside a history of failures. */
  advance(ms: number): Promise<void>;
  /** The database's clock, in ms. */
  now(): number;
  /** Ids in order of position, and held keys in any order. */
  contents(box: string): Promise<StoreHarnessContents>;
  /** A hash of everything that is stored: the same as long as nothing has changed. */
  fingerprint(): Promise<string>;
  /** With `abortsOnError`: makes a statement fail within `tx` and swallows its error. */
  breakTransaction?(tx: Tx): Promise<void>;
  /** With `processes`: starts another process. */
  process?(): Promise<StoreProcess<Tx>>;
  /**
   * Options with which `purge` removes row by row, so that figures are exact, such as `{ partitions: false }`. Defaults
   * to nothing.
   */
  readonly rowByRow?: object;
  /** What a user may pass by mistake instead of a transaction, such as the pool. Defaults to none. */
  impostors?(): readonly unknown[];
  close(): Promise<void>;
}

/** Everything that a store holds, as a suite sees it from outside. */
export interface StoreHarnessContents {
  readonly pending: readonly string[];
  readonly wait: readonly string[];
  readonly holds: readonly string[];
  readonly scheduled: readonly string[];
  readonly parked: readonly { readonly id: string; readonly error: string }[];
  /** Sent messages that were kept; in an inbox, handled ones. */
  readonly done: readonly string[];
}

/** The contents of an empty box. */
export const emptyBox: StoreHarnessContents = { pending: [], wait: [], holds: [], scheduled: [], parked: [], done: [] };

/** Options of the suites for stores. */
export interface StoreSuiteOptions<Tx> {
  readonly name: string;
  readonly features: StoreFeatures;
  /** Called for every fact. The store must be empty and, if it has a schema, migrated. */
  create(): Promise<StoreHarness<Tx>>;
}
