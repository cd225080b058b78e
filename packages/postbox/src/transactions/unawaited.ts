import { PostboxError } from "../errors.js";
import { type ClientParts, closeClient, isSessionQuestion } from "./session.js";

/**
 * Throws `statement-not-awaited` if a statement is under way on a `pg` client when the function of its transaction has ended: nobody
 * hears of its failure, and what follows it would be written by itself, after COMMIT or ROLLBACK. So the connection is closed, which
 * rolls back.
 */
export function requireAwaited(client: ClientParts): void {
  const { _activeQuery: active, _queryQueue: queue = [], _sentQueryQueue: sent = [] } = client;
  const unawaited = [active, ...queue, ...sent].filter((query) => query && !isSessionQuestion(query)).length;
  if (unawaited === 0) return;
  closeClient(client);
  throw new PostboxError(
    "statement-not-awaited",
    `${unawaited === 1 ? "a statement was" : `${unawaited} statements were`} still under way when the transaction's function ended, ` +
      "so everything was rolled back and the connection closed; await every statement before the function returns",
  );
}
