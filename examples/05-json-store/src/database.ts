import { mkdir, open, readFile, rename } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { PostboxError, type Runtime, StoreRows, storeOverRows } from "postbox/store";
import { JsonTransaction } from "./json-transaction.js";

/** How long a transaction may continue after its signal is aborted. */
const graceMs = 500;

/** The content of the file: the rows of the store, and the user's own values. */
export interface State {
  readonly rows: StoreRows;
  readonly documents: Map<string, unknown>;
}

const databases = new Map<string, JsonDatabase>();

/**
 * Returns the database of this file. Stores in one process that name the same file share it, so that their transactions
 * run one at a time. The first call sets the clock.
 */
export function openDatabase(file: string, runtime: Runtime): JsonDatabase {
  const path = resolve(file);
  const database = databases.get(path) ?? new JsonDatabase(path, runtime);
  databases.set(path, database);
  return database;
}

/**
 * One file, one transaction at a time. A transaction works on a copy of the last commit, and its commit writes the
 * whole file. Readers see the last commit and never wait.
 */
export class JsonDatabase {
  readonly file: string;
  /** The store's operations outside a user's transaction. */
  readonly verbs;
  readonly #runtime: Runtime;
  #committed: State | undefined;
  /** The text of the file at the last commit; empty if there is no file. */
  #text = "";
  /** Resolves when the last transaction in the queue has ended. */
  #lastTurn: Promise<void> = Promise.resolve();
  #open: { readonly tx: JsonTransaction; readonly draft: State } | undefined;

  constructor(file: string, runtime: Runtime) {
    this.file = file;
    this.#runtime = runtime;
    this.verbs = storeOverRows({
      runtime,
      // A transaction begins, and draws its positions, only after the previous one has ended.
      inCommitOrder: true,
      read: async (look) => look((await this.committed()).rows),
      change: (work, signal) => this.change(work, signal),
      isUnavailable,
    });
  }

  /** The state of the last commit. Callers must not change it. */
  async committed(): Promise<State> {
    this.#committed ??= await this.#load();
    return this.#committed;
  }

  /** The rows as the open transaction `tx` sees them. Throws `not-a-transaction` if `tx` is not the open one. */
  rowsOf(tx: unknown): StoreRows {
    if (this.#open !== undefined && this.#open.tx === tx) return this.#open.draft.rows;
    throw new PostboxError(
      "not-a-transaction",
      `this is not an open transaction of ${this.file}; pass the one that store.transaction() gave to your function, ` +
        "before that function ends",
    );
  }

  /** Changes the rows in a transaction of its own. */
  change<R>(work: (rows: StoreRows) => R, signal?: AbortSignal): Promise<R> {
    return this.transact((tx) => work(this.rowsOf(tx)), signal);
  }

  /**
   * Runs `work` after all earlier transactions have ended. If `work` resolves, its draft is committed. If it rejects,
   * nothing changes.
   */
  async transact<R>(work: (tx: JsonTransaction) => Promise<R> | R, signal?: AbortSignal): Promise<R> {
    const endTurn = await this.#takeTurn(signal);
    try {
      await this.committed();
      const draft = this.#read(this.#text);
      const tx = new JsonTransaction(this.file, draft.documents);
      this.#open = { tx, draft };
      const result = await unlessAborted(Promise.resolve(work(tx)), signal, graceMs);
      this.#end();
      await this.#commit(draft);
      return result;
    } finally {
      this.#end();
      endTurn();
    }
  }

  /** A handle that the user keeps after this throws on every use. */
  #end(): void {
    this.#open?.tx.end();
    this.#open = undefined;
  }

  async #takeTurn(signal: AbortSignal | undefined): Promise<() => void> {
    const before = this.#lastTurn;
    let endTurn = () => {};
    this.#lastTurn = new Promise((resolve) => {
      endTurn = resolve;
    });
    try {
      await unlessAborted(before, signal, 0);
    } catch (error) {
      // This caller gives up its place. Later transactions still wait for the earlier ones.
      before.then(endTurn);
      throw error;
    }
    return endTurn;
  }

  async #load(): Promise<State> {
    this.#text = "";
    try {
      this.#text = await readFile(this.file, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw unavailable(`cannot read ${this.file}`, error);
    }
    try {
      return this.#read(this.#text);
    } catch (cause) {
      const text = `${this.file} was not written by this store: ${cause}; restore it from a backup`;
      throw new PostboxError("store-failed", text, { cause });
    }
  }

  #read(text: string): State {
    const { rows, documents } = text === "" ? { documents: [] } : JSON.parse(text);
    return { rows: new StoreRows({ runtime: this.#runtime }, rows), documents: new Map(documents) };
  }

  /** Writes the draft to the file, then shows it to readers. A transaction without changes writes nothing. */
  async #commit(draft: State): Promise<void> {
    const text = JSON.stringify({ ...draft, documents: [...draft.documents] });
    if (text === this.#text) return;
    try {
      await replaceFile(this.file, text);
    } catch (error) {
      // The outcome of the rename is unknown, so the next transaction reads the file again.
      this.#committed = undefined;
      throw unavailable(`cannot write ${this.file}`, error);
    }
    this.#text = text;
    this.#committed = draft;
  }
}

/**
 * Replaces the file. Each step is durable before the next one begins, so a crash leaves either the old or the new file.
 */
async function replaceFile(file: string, text: string): Promise<void> {
  const temporary = `${file}.tmp`;
  await mkdir(dirname(file), { recursive: true });
  await sync(temporary, text);
  await rename(temporary, file);
  await sync(dirname(file));
}

async function sync(path: string, text?: string): Promise<void> {
  const opened = await open(path, text === undefined ? "r" : "w");
  try {
    if (text !== undefined) await opened.writeFile(text);
    await opened.sync();
  } finally {
    await opened.close();
  }
}

function unavailable(what: string, cause: unknown): PostboxError {
  return new PostboxError("store-unavailable", `${what}: ${cause}; check its folder, its rights and the free space`, {
    cause,
  });
}

export function isUnavailable(error: unknown): boolean {
  return error instanceof PostboxError && error.code === "store-unavailable";
}

/**
 * Settles like `awaited`. If that takes longer than `forMs` after the signal is aborted, it rejects with the signal's
 * reason.
 */
function unlessAborted<R>(awaited: Promise<R>, signal: AbortSignal | undefined, forMs: number): Promise<R> {
  if (signal === undefined) return awaited;
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    const giveUp = () => {
      timer = setTimeout(() => reject(signal.reason), forMs);
    };
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp);
    const stopWatching = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", giveUp);
    };
    awaited.finally(stopWatching).then(resolve, reject);
  });
}
