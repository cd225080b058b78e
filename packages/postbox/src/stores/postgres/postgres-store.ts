import type { ClientBase, Pool } from "pg";
import type { Message } from "../../message/message.js";
import { checkOptions, type OptionRule, object, text } from "../../options.js";
import type { Store, TransactionLibrary } from "../../store.js";
import { pgTransactions } from "../../transactions/pg.js";
import { surroundingTransactions } from "../../transactions/surrounding-transaction.js";
import { keyLocks } from "./key-lock.js";
import { columnsOf, messageColumns, messageValues, usualColumns } from "./message-columns.js";
import { migrationSteps } from "./migrations.js";
import { defaultSchema, requireBox, schemaRule } from "./names.js";
import { ownConnections } from "./own-connection.js";
import { postgresAdmin } from "./postgres-admin.js";
import { postgresBox } from "./postgres-box.js";
import { postgresHealth } from "./postgres-health.js";
import { postgresHints } from "./postgres-hints.js";
import { postgresRetention } from "./postgres-retention.js";
import { withReservedConnections } from "./reserved-connection.js";
import { type StatementRunner, statementRunner } from "./run-statement.js";
import { schemaCheck, schemaError } from "./schema-check.js";
import { appendSql, rememberSql } from "./write-sql.js";

export interface PostgresStoreOptions {
  /**
   * A pool of `pg`. It stays yours: end it after everything that works on the store has stopped. It needs a connection for
   * each handler that runs at once, and some for the relay and for whatever else you do with it. A relay opens one more
   * beside it, to renew its lease while the pool is exhausted, and another one to listen to hints. Where nobody listens to
   * its `error` events, the store does, so that an idle connection that breaks does not end the process.
   */
  readonly pool: Pool;
  /**
   * Where the connections of a relay's own go, for hints and renewals: the server itself, when the pool's connections end at
   * a pooler that hands each transaction to another session. Defaults to where the pool connects.
   */
  readonly directUrl?: string;
  /** The schema that the tables live in. Defaults to "postbox". */
  readonly schema?: string;
}

const poolRule: OptionRule = {
  expected: "a Pool of pg",
  test: (value) =>
    ["connect", "query", "on", "listenerCount"].every(
      (method) => typeof (value as Record<string, unknown> | null)?.[method] === "function",
    ),
};

const rules = { pool: poolRule, directUrl: text, transactions: object, schema: schemaRule };

export interface PostgresStore<Tx> extends Store<Tx> {
  readonly schema: string;
}

/**
 * A store in PostgreSQL. Without `transactions` its transactions are those of `pg`, on the same pool; with
 * it they are that library's, which must work on the same database.
 *
 * It keeps nothing in a session and names no statement, so it works through a pooler in transaction mode.
 */
export function postgresStore(
  options: PostgresStoreOptions & { readonly transactions?: undefined },
): PostgresStore<ClientBase>;
export function postgresStore<Tx>(
  options: PostgresStoreOptions & { readonly transactions: TransactionLibrary<Tx> },
): PostgresStore<Tx>;
export function postgresStore(
  options: PostgresStoreOptions & { readonly transactions?: TransactionLibrary<unknown> },
): PostgresStore<unknown> {
  checkOptions("postgresStore", options, rules, ["pool"]);
  const { pool, schema = defaultSchema } = options;
  const onPool = pgTransactions(pool);
  const library = options.transactions ?? (onPool as TransactionLibrary<unknown>);
  // An idle connection that breaks makes the pool emit an error, which would end a process that nobody prepared for it.
  if (pool.listenerCount("error") === 0) pool.on("error", () => {});
  const name = "postgres";
  const run = statementRunner(pool);
  const checkSchema = schemaCheck(schema);
  const { transaction, current, afterCommit } = surroundingTransactions(name, library);
  const open = ownConnections(pool, options.directUrl);

  /** One statement in the user's transaction. The library's errors stay as they are: the user knows them. */
  async function write(tx: unknown, text: string, params: readonly unknown[]): Promise<number> {
    const execute = library.executor(tx);
    try {
      const checking = checkSchema(execute);
      if (checking !== undefined) await checking;
      return (await execute(text, params)).rows.length;
    } catch (error) {
      throw schemaError(error, schema);
    }
  }

  /** The statements of each box, made once. */
  const statements = new Map<string, ReturnType<typeof appendSql>>();
  function appending(box: string): ReturnType<typeof appendSql> {
    const made = statements.get(box) ?? appendSql(schema, box);
    statements.set(box, made);
    return made;
  }

  return {
    name,
    schema,
    transaction,
    current,
    ...(open && { hints: postgresHints({ pool, open, schema, afterCommit }) }),

    async append(tx, box, messages, { strictKeyOrder = false } = {}) {
      requireBox(box);
      const [first] = messages;
      const locks = strictKeyOrder ? keyLocks(schema, box, messages) : [];
      const inTurn = locks.length > 0;
      if (first === undefined) library.executor(tx);
      else if (messages.some(({ deliverAt }) => deliverAt !== undefined)) {
        const { timed, timedInTurn } = appending(box);
        await write(tx, inTurn ? timedInTurn : timed, [
          manyMessages(messages),
          ...(inTurn ? [JSON.stringify(locks)] : []),
        ]);
      } else if (messages.length === 1) {
        const { one, usual, oneInTurn } = appending(box);
        const columns = inTurn ? messageColumns : columnsOf(first);
        const text = inTurn ? oneInTurn : columns === usualColumns ? usual : one;
        await write(tx, text, [...oneMessage(first, columns), ...locks]);
      } else {
        const { many, manyInTurn } = appending(box);
        await write(tx, inTurn ? manyInTurn : many, [
          manyMessages(messages),
          ...(inTurn ? [JSON.stringify(locks)] : []),
        ]);
      }
    },

    async remember(tx, consumer, { id, type, source, topic, extensions }) {
      const params = [consumer, id, type, source, topic, extensions.correlationid ?? null];
      return (await write(tx, rememberSql(schema), params)) === 1 ? "new" : "duplicate";
    },

    box(box) {
      requireBox(box);
      const boxOn = (execute: StatementRunner) => postgresBox(schema, box, execute, checkSchema);
      return open === undefined ? boxOn(run) : withReservedConnections(`${schema}.${box}`, boxOn, run, open);
    },

    admin: postgresAdmin(schema, run, onPool, checkSchema),
    purge: postgresRetention(schema, run, onPool, checkSchema),
    health: postgresHealth(schema, pool),

    async migrate() {
      try {
        await onPool.begin((client) => client.query(migrationSteps(schema)), { isolation: "read committed" });
      } catch (error) {
        throw schemaError(error, schema);
      }
    },
  };
}

function oneMessage(message: Message, columns: typeof messageColumns): unknown[] {
  const values = messageValues(message);
  const params: unknown[] = [values.lane];
  for (const [name, type] of columns) {
    params.push(type === "jsonb" ? JSON.stringify(values[name]) : (values[name] ?? null));
  }
  return params;
}

function manyMessages(messages: readonly Message[]): string {
  return JSON.stringify(
    messages.map((message) => {
      const values = messageValues(message);
      return { ...values, due_at: message.deliverAt, data: (values.data as Buffer).toString("base64") };
    }),
  );
}
