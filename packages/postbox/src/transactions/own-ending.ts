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

/**
 * Watches what the server says of each statement on a `pg` client, which costs nothing. `ROLLBACK TO SAVEPOINT` is told as
 * ROLLBACK too: there the text of the statement decides.
 */
export function watchEnding(client: ClientParts): EndingWatch {
  let seen = false;
  const heard = ({ text }: { readonly text: string }) => {
    if (!tags.has(text)) return;
    const { _activeQuery: query } = client;
    seen ||= text !== "ROLLBACK" || query?.text === undefined || endsTransaction(query);
  };
  client.connection?.on("commandComplete", heard);
  return { seen: () => seen, stop: () => void client.connection?.off("commandComplete", heard) };
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
