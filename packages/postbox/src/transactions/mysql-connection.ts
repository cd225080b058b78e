import { setImmediate as nextTurn } from "node:timers/promises";
import { PostboxError } from "../errors.js";
import type { Executor } from "../store.js";
import { isMysqlConflict } from "./mysql-errors.js";
import { commitRolledBack, endsTransaction, lost, notATransaction, type Refusal } from "./open-transaction.js";
import { isEnded, transactionEnded } from "./own-ending.js";

/** A statement that `mysql2` has queued or sent. */
interface Command {
  readonly sql?: unknown;
  onResult?: (error: Error | null, ...answer: unknown[]) => void;
  on(event: "result" | "end", heard: (header: Partial<Header>) => void): unknown;
}

interface Header {
  readonly affectedRows: number;
  readonly serverStatus: number;
}

/** What a connection of `mysql2` has beyond its types. */
export interface MysqlConnection {
  readonly state: string;
  readonly threadId: number;
  readonly _command?: Command | null;
  readonly _commands: { readonly length: number; get(index: number): Command | undefined };
  /** Whether it was given back to its pool. */
  readonly _released?: boolean;
  addCommand(command: Command): Command;
  query(options: object, answered: (error: Error | null, result: unknown) => void): unknown;
  ping(answered: (error: Error | null) => void): void;
  destroy(): void;
  on(event: "error", heard: () => void): unknown;
  removeListener(event: "error", heard: () => void): unknown;
}

/** What the server has said last about a connection, as far as OK packets tell: they carry its transaction status. */
interface Watch {
  /** `unknown`: a statement has failed or returned rows since, or none has been seen yet. */
  status: "open" | "closed" | "unknown";
  /** How often a statement has ended a transaction on it. */
  endings: number;
  /** Whether the server has rolled back a transaction by itself, and none has begun since. */
  isRolledBack: boolean;
}

const inTransaction = 1;
const moreResults = 8;
const begins = /^\s*(?:begin|start\s+transaction)\b/i;

const watches = new WeakMap<object, Watch>();

/** The connection of `mysql2` under a handle, which may be a promise wrapper; undefined for anything else. */
export function mysqlConnectionOf(handle: unknown): MysqlConnection | undefined {
  if (typeof handle !== "object" || handle === null) return undefined;
  const { connection } = handle as { readonly connection?: unknown };
  const base = (connection ?? handle) as Partial<MysqlConnection>;
  const isConnection = typeof base.addCommand === "function" && typeof base._commands === "object";
  return isConnection ? (base as MysqlConnection) : undefined;
}

/** Watches a connection from now on, once. */
export function watchOf(connection: MysqlConnection): Watch {
  const known = watches.get(connection);
  if (known !== undefined) return known;
  const watch: Watch = { status: "unknown", endings: 0, isRolledBack: false };
  watches.set(connection, watch);
  const { addCommand } = connection;
  connection.addCommand = function watched(this: MysqlConnection, command) {
    observe(watch, command);
    return addCommand.call(this, command);
  };
  return watch;
}

function observe(watch: Watch, command: Command): void {
  const text = typeof command.sql === "string" ? command.sql : undefined;
  const { onResult } = command;
  let isTold = false;
  if (onResult !== undefined) {
    command.onResult = (error, ...answer) => {
      // Some of these undo their own statement only. If so, the next answer tells that the transaction is open.
      if (isMysqlConflict(error)) watch.isRolledBack = true;
      onResult.call(command, error, ...answer);
    };
  }
  command.on("result", ({ serverStatus }) => {
    if (typeof serverStatus !== "number" || (serverStatus & moreResults) !== 0) return;
    isTold = true;
    const isOpen = (serverStatus & inTransaction) !== 0;
    const hasBegun = text !== undefined && begins.test(text);
    // A statement of the schema commits, too, and BEGIN ends the transaction before.
    if (watch.status !== "closed" && !watch.isRolledBack && (!isOpen || hasBegun)) watch.endings++;
    if (isOpen) watch.isRolledBack = false;
    watch.status = isOpen ? "open" : "closed";
  });
  command.on("end", () => {
    if (!isTold) watch.status = "unknown";
  });
}

/** Why a connection can surely not carry a message; undefined if it may. */
export function whyNotUsable(connection: MysqlConnection): Refusal | undefined {
  if (connection.state !== "authenticated") return lost;
  if (connection._released === true) return { not: "its connection was given back to the pool" };
  if (queued(connection).some((command) => endsTransaction({ text: String(command.sql ?? "") }))) {
    return { not: "it is being ended" };
  }
  return undefined;
}

function queued({ _command: active, _commands: queue }: MysqlConnection): readonly Command[] {
  const all = Array.from({ length: queue.length }, (_, index) => queue.get(index));
  return [active, ...all].filter((command) => command != null);
}

/** Whether statements are in flight. */
function isBusy({ _command: active, _commands: queue }: MysqlConnection): boolean {
  return active != null || queue.length > 0;
}

/** Whether a connection may be used for something else: no transaction is open on it, and nothing is in flight. */
export function isSound(connection: MysqlConnection): boolean {
  return connection.state === "authenticated" && watchOf(connection).status === "closed" && !isBusy(connection);
}

/** Runs one statement. The pool's own settings for formats and types do not apply to it. */
export function queryOn(connection: MysqlConnection, sql: string, params: readonly unknown[]): ReturnType<Executor> {
  const text = params.length === 0 ? sql : withValues(sql, params);
  const options = { sql: text, typeCast: true, rowsAsArray: false, nestTables: false, supportBigNumbers: true };
  return new Promise((resolve, reject) => {
    connection.query(options, (error, result) => {
      if (error) reject(error);
      else if (Array.isArray(result)) resolve({ rows: result, rowCount: result.length });
      else resolve({ rows: [], rowCount: Number((result as Header).affectedRows) });
    });
  });
}

/**
 * Writes values in the place of `?`. Texts become bytes: neither the character set nor the SQL mode of the connection
 * can then change them.
 */
function withValues(sql: string, params: readonly unknown[]): string {
  let next = 0;
  return sql.replaceAll("?", () => literalOf(params[next++]));
}

function literalOf(value: unknown): string {
  if (value === null || value === undefined) return "NULL";
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  if (value instanceof Uint8Array)
    return `X'${Buffer.from(value.buffer, value.byteOffset, value.length).toString("hex")}'`;
  if (Array.isArray(value)) return value.map(literalOf).join(", ");
  return `CONVERT(X'${Buffer.from(String(value)).toString("hex")}' USING utf8mb4)`;
}

/** Throws unless a transaction is open. Asks the server only if its last answer does not tell. */
export async function requireOpen(connection: MysqlConnection, rightCall: string): Promise<void> {
  const watch = watchOf(connection);
  // With autocommit off, a reading statement begins a transaction, and nothing tells.
  if (watch.status !== "open") await queryOn(connection, "DO 0", []);
  const refusal = whyNotUsable(connection);
  if (refusal !== undefined) throw notATransaction(refusal, rightCall);
  if (watch.status !== "open") throw notATransaction(notBegun, rightCall);
}

const notBegun: Refusal = {
  not:
    "no transaction is open on this connection: it has not begun, or has ended, for example because a publish was " +
    "not awaited, or the database has rolled it back after a deadlock",
};

/** How long statements may take to end when the function of their transaction has ended. */
const limitMs = 10_000;

/**
 * Runs the function of a transaction that has just begun. Rejects if COMMIT would not commit all of it: the function
 * has ended the transaction itself, for example with a statement of the schema, or the database has rolled it back.
 */
export async function withinOpen<R>(connection: MysqlConnection, work: () => Promise<R>): Promise<R> {
  const watch = watchOf(connection);
  if (watch.status !== "open") await queryOn(connection, "DO 0", []);
  const begun = watch.endings;
  const ask = async () => {
    if (watch.status !== "open") await queryOn(connection, "DO 0", []);
  };
  try {
    const result = await work();
    const unawaited = refuseMysqlUnawaited(connection);
    if (unawaited !== undefined) await unawaited;
    if (watch.endings !== begun) throw transactionEnded();
    await ask();
    if (watch.status !== "open") throw watch.isRolledBack ? commitRolledBack() : transactionEnded();
    return result;
  } catch (thrown) {
    await refuseMysqlUnawaited(connection)?.catch(() => {});
    if (isEnded(thrown) || isMysqlConflict(thrown)) throw thrown;
    if (watch.endings !== begun) throw transactionEnded(thrown);
    throw watch.isRolledBack && connection.state === "authenticated" ? commitRolledBack(thrown) : thrown;
  }
}

/**
 * Call it when the function of a transaction has ended. Returns undefined if nothing is in flight on its connection.
 * Otherwise waits until all statements have ended, so that ROLLBACK follows them, and rejects with `not-awaited`. If
 * they do not end, the connection is closed.
 */
export function refuseMysqlUnawaited(connection: MysqlConnection): Promise<void> | undefined {
  return isBusy(connection) ? refuse(connection) : undefined;
}

async function refuse(connection: MysqlConnection): Promise<never> {
  const isIdle = await new Promise<boolean>((resolve) => {
    const timer = setTimeout(() => resolve(false), limitMs);
    // Answered after everything that was sent before.
    connection.ping(() => {
      clearTimeout(timer);
      resolve(true);
    });
  });
  if (!isIdle) connection.destroy();
  // The code that awaited the results continues first.
  await nextTurn();
  throw new PostboxError(
    "not-awaited",
    "a statement was still in flight when the transaction's function ended, so everything was rolled back; " +
      "await every statement before the function returns",
  );
}
