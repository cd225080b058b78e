import { PostboxError } from "../errors.js";
import { endsTransaction } from "./open-transaction.js";
import type { ClientParts } from "./session.js";

/** Reports whether the function of a transaction has ended it. */
export interface EndingWatch {
  seen(): boolean;
  stop(): void;
}

/** The command tags of statements that end a transaction, even if they begin another (AND CHAIN). */
const tags: ReadonlySet<string> = new Set(["COMMIT", "ROLLBACK", "PREPARE TRANSACTION"]);

/**
 * One listener per client for its whole life. Adding and removing one per transaction costs more than hearing
 * everything.
 */
const watches = new WeakMap<object, EndingWatch & { start(): void }>();

/**
 * Watches the command tags on a `pg` client from now on until `stop`. ROLLBACK TO SAVEPOINT has the tag ROLLBACK too,
 * so the text of the statement decides.
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

/**
 * The error for a function that ended its own transaction and may have begun another. `cause` is what failed after
 * that.
 */
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
