import type { Writers } from "../../store.js";
import type { MysqlAccess } from "./mysql-access.js";
import { msOf, nowSql, type Tables } from "./names.js";
import type { Answer, Session } from "./own-connections.js";
import type { Server } from "./server.js";

/**
 * Transactions that may have drawn positions and have not ended, each as its connection and the count of appends that
 * the connection had committed before. A rollback leaves that count as it was. So a relay takes the connection's next
 * transaction for the same one, and waits for it, too.
 */
class OpenWriters implements Writers {
  readonly #names: ReadonlySet<string>;

  constructor(names: ReadonlySet<string>) {
    this.#names = names;
  }

  get none(): boolean {
    return this.#names.size === 0;
  }

  without(others: Writers): OpenWriters {
    if (!(others instanceof OpenWriters)) throw new TypeError("writers of another store cannot be compared with these");
    if (this.none || others.none) return this;
    return new OpenWriters(new Set([...this.#names].filter((name) => !others.#names.has(name))));
  }
}

/** What was read, with the positions and writers of that moment. */
export interface Sight {
  readonly answer: Answer;
  readonly writers: Writers;
  /** The highest position that was drawn before the writers were read. */
  readonly drawn: number;
  readonly server: string;
}

/**
 * Runs a read of `pending` together with a look at the writers in progress. The order of these steps is what finds
 * every late commit:
 *
 * 1. A transaction registers in `writer` before it draws a position.
 * 2. The highest drawn position is read.
 * 3. Then the registrations are read, in a dirty read and in a committed one.
 * 4. Then the rows are read.
 *
 * A transaction that has drawn a position up to the one of step 2 had registered before. So it is among those of step
 * 3, or has ended before step 4. Rows at higher positions do not count: their transactions may be unknown.
 */
export async function readWithWriters(
  session: Session,
  t: Tables,
  database: string,
  { hasDirtyReads }: Server,
  sql: string,
): Promise<Sight> {
  const registered = `SELECT connection, appends FROM ${t.writer} FORCE INDEX (PRIMARY)`;
  const [position, , dirty, committed, answer] = await session.runAll([
    [
      `SELECT (SELECT auto_increment FROM information_schema.tables
         WHERE table_schema = ? AND table_name = 'postbox_pending') AS next,
         CONCAT(@@hostname, ' ', @@port, ' ', @@server_id) AS server, ${nowSql} AS now`,
      [database],
    ],
    [hasDirtyReads ? "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED" : "DO 0"],
    [registered],
    [registered],
    [sql],
  ]);
  const { next, server, now } = position?.rows[0] ?? {};
  return {
    answer: answer as Answer,
    writers: hasDirtyReads ? openWriters(dirty?.rows ?? [], committed?.rows ?? []) : supposedWriters(msOf(now)),
    drawn: Math.max(0, Number(next ?? 1) - 1),
    server: String(server),
  };
}

/** How long a connection that appends nothing stays registered. */
const idleSql = "3600000000";

/**
 * Removes the registrations of connections that have appended nothing for an hour: most of them are closed. One in an
 * open transaction is locked, and skipped; any other one is made again by the next append.
 */
export function forgetWriters(access: MysqlAccess): Promise<void> {
  const { t } = access;
  return access.transact(async (transaction) => {
    const { rows } = await transaction.run(
      `SELECT connection FROM ${t.writer} FORCE INDEX (PRIMARY) WHERE at < ${nowSql} - ${idleSql} LIMIT 1000
       FOR UPDATE ${access.server.skipsLocked ? "SKIP LOCKED" : ""}`,
    );
    if (rows.length === 0) return;
    const connections = rows.map(({ connection }) => connection).join(", ");
    await transaction.run(`DELETE FROM ${t.writer} WHERE connection IN (${connections})`);
  });
}

/** How long a transaction is supposed to take, and in which steps, where nothing shows the open ones. */
const supposedMs = 5_000;
const stepMs = 250;

/**
 * Without dirty reads: a writer for each moment of the last seconds. When it has ended, the relay looks for the rows
 * that transactions of that moment have left. Those of a longer transaction are found by the relay's sweep of each
 * minute.
 */
function supposedWriters(now: number): OpenWriters {
  const last = Math.floor(now / stepMs);
  return new OpenWriters(new Set(Array.from({ length: supposedMs / stepMs }, (_, back) => `at ${last - back}`)));
}

type Registered = readonly Readonly<Record<string, unknown>>[];

function openWriters(dirty: Registered, committed: Registered): OpenWriters {
  const before = new Map(committed.map(({ connection, appends }) => [connection, appends]));
  const open = dirty.filter(({ connection, appends }) => before.get(connection) !== appends);
  return new OpenWriters(new Set(open.map(({ connection }) => `${connection} ${before.get(connection) ?? 0}`)));
}
