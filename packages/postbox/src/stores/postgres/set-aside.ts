import type { ClientBase } from "pg";
import type { Aside, RememberOptions, TransactionLibrary } from "../../store.js";
import { lockLanesSql } from "./admin-sql.js";
import { cancelStatement } from "./cancel-statement.js";
import { errorText } from "./error-text.js";
import { type InboxRecord, lockLimit } from "./inbox-record.js";
import { adoptSql, placeSql, setAsideSql } from "./inbox-sql.js";
import type { BoxTables } from "./names.js";
import { namedFailure } from "./run-statement.js";

/** `known`: by its id; whether its data differ is to be compared. */
type Adopted = "new" | "known" | "too-old";

type SetAside = (record: InboxRecord, aside: Aside, options: RememberOptions, signal?: AbortSignal) => Promise<Adopted>;

/** `Inbox.setAside` for the box of one consumer: one transaction of its own, so a crash leaves all of it or nothing. */
export function settingAside(schema: string, t: BoxTables, onPool: TransactionLibrary<ClientBase>): SetAside {
  const [adopt, lockLanes, place] = [adoptSql(schema, t), lockLanesSql(t), placeSql(t)];
  const to = { wait: setAsideSql(t, "wait"), parked: setAsideSql(t, "parked") };

  async function placed(
    client: ClientBase,
    record: InboxRecord,
    aside: Aside,
    { retentionMs, lockTimeoutMs }: RememberOptions,
  ): Promise<Adopted> {
    const given = JSON.stringify([record]);
    // First the statement that may have to wait, then the lane lock, which others wait for.
    const [found] = (await client.query(adopt, [given, retentionMs, lockLimit(lockTimeoutMs)])).rows;
    const isNew = Number(found.new) === 1;
    if (isNew || (aside.to === "parked" && aside.anyway === true)) {
      await client.query(lockLanes, [[record.lane]]);
      const [row] = (await client.query<{ position: string }>(place, [given])).rows;
      const retryInMs = aside.to === "wait" ? aside.retryInMs : null;
      const params = [record.lane, row?.position, aside.attempts, errorText(aside.error), retryInMs];
      await client.query(to[aside.to], params);
    }
    return found.old ? "too-old" : isNew ? "new" : "known";
  }

  return (record, aside, options, signal) =>
    inOneTransaction(onPool, (client) => placed(client, record, aside, options), signal);
}

/**
 * Runs `work` in a transaction that ends when the signal is aborted: the running statement is cancelled on the server,
 * and the connection is closed.
 */
async function inOneTransaction<R>(
  onPool: TransactionLibrary<ClientBase>,
  work: (client: ClientBase) => Promise<R>,
  signal: AbortSignal | undefined,
): Promise<R> {
  const cancellable = async (client: ClientBase) => {
    // Cancelling the statement also closes its connection.
    const giveUp = () => void cancelStatement(client);
    signal?.addEventListener("abort", giveUp, { once: true });
    try {
      return await work(client);
    } finally {
      signal?.removeEventListener("abort", giveUp);
    }
  };
  // Also covers BEGIN and COMMIT, where nothing else observes the signal. It must not fire later, when the connection
  // may belong to another caller.
  let close = () => {};
  const onAbort = () => close();
  const connected = (given: () => void) => {
    close = given;
    if (signal?.aborted) close();
  };
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    return await onPool.begin(cancellable, { isolation: "read committed", connected });
  } catch (thrown) {
    throw namedFailure(thrown);
  } finally {
    signal?.removeEventListener("abort", onAbort);
  }
}
