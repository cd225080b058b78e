import { PostboxError } from "../errors.js";
import { endsTransaction } from "./open-transaction.js";
import type { ClientParts } from "./session.js";

/** Whether somebody else than its opener has ended a transaction. */
export interface EndingWatch {
  seen(): boolean;
  stop(): void;
}

/** What the server says of a statement that ends a transaction, whether or not it begins another. */
const tags: ReadonlySet<string> = new Set(["COMMIT", "ROLLBACK", "PREPARE TRANSACTION"]);

/** One for each client, for as long as that lives: to listen and stop for each transaction costs more than to hear everything. */
const watches = new WeakMap<object, EndingWatch & { start(): void }>();

/**
 * Watches what the server says of each statement on a `pg` client, from now on until it is stopped. `ROLLBACK TO SAVEPOINT` is told
 * as ROLLBACK too: there the text of the statement decides.
 */
export function watchEnding(client: ClientParts): EndingWatch {
  const watch = watches.get(client) ?? newWatch(client);
  watch.start();
  return watch;
}

function newWatch(client: ClientParts): EndingWatch & { start(): void } {
  let [on, seen] = [false, false];
  client.connection?.on("commandComplete", ({ text }) => {
    if (!on || !tags.has(text)) return;
    const { _activeQuery: query } = client;
    seen ||= text !== "ROLLBACK" || query?.text === undefined || endsTransaction(query);
  });
  const watch = {
    start() {
      [on, seen] = [true, false];
    },
    seen: () => seen,
    stop() {
      on = false;
    },
  };
  watches.set(client, watch);
  return watch;
}

/** The error for work that ended the transaction that it was given, and may have begun another; with what it failed with after that. */
export function transactionEnded(cause?: unknown): PostboxError {
  return new PostboxError(
    "transaction-ended",
    "the transaction was ended by its own function, so what belongs together no longer commits together; " +
      "leave BEGIN, COMMIT and ROLLBACK to store.transaction, and use savepoints for what may fail",
    { cause },
  );
}

export function isEnded(error: unknown): boolean {
  return error instanceof PostboxError && error.code === "transaction-ended";
}
