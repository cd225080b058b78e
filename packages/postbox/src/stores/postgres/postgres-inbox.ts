import type { ClientBase } from "pg";
import { PermanentError } from "../../errors.js";
import {
  type Arrival,
  type GuardedStatement,
  type Inbox,
  inboxOf,
  type Remembered,
  type TransactionLibrary,
} from "../../store.js";
import { onlyValue } from "../../transactions/open-transaction.js";
import { sqlState } from "../../transactions/sql-state.js";
import { busyError, failedError } from "../inbox-errors.js";
import { messageValues } from "../message-record.js";
import type { BoxFinder } from "./box-numbers.js";
import { handledSql, rememberSql } from "./inbox-functions.js";
import { lockLimit, memoryValues, recordOf, timeOf } from "./inbox-record.js";
import { hashSql, keepSql } from "./inbox-sql.js";
import type { BoxTables } from "./names.js";
import type { StatementRunner } from "./run-statement.js";
import { schemaError } from "./schema-check.js";
import { settingAside } from "./set-aside.js";

export interface PostgresInboxOptions<Tx> {
  readonly schema: string;
  readonly boxes: BoxFinder;
  readonly run: StatementRunner;
  readonly onPool: TransactionLibrary<ClientBase>;
  /** Runs one statement in a user's transaction. */
  write(
    tx: Tx,
    statement: string | GuardedStatement,
    params: readonly unknown[],
  ): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

const lockNotAvailable = "55P03";

/** `Store.inbox` in PostgreSQL. */
export function postgresInbox<Tx>({ schema, boxes, run, onPool, write }: PostgresInboxOptions<Tx>): Inbox<Tx> {
  const [remember, handled, hash] = [rememberSql(schema), handledSql(schema), hashSql(schema)];
  /** Created once per consumer. */
  const made = new Map<string, ReturnType<typeof statementsOf>>();
  async function statements(consumer: string): Promise<ReturnType<typeof statementsOf>> {
    const known = made.get(consumer) ?? statementsOf(schema, await boxes.tables(inboxOf(consumer)), onPool);
    made.set(consumer, known);
    return known;
  }

  /**
   * Runs a statement of the inbox itself. Its failure says nothing about the message, unless the database cannot store
   * it.
   */
  function own<R>(arrival: Arrival, work: Promise<R>): Promise<R> {
    return work.catch((thrown: unknown) => {
      if (isUnstorable(thrown)) throw unstorable(arrival, thrown);
      if (isServers(thrown)) throw failedError(arrival, thrown);
      throw schemaError(thrown, schema);
    });
  }

  function patiently<R>(arrival: Arrival, lockTimeoutMs: number, work: Promise<R>): Promise<R> {
    const waiting = work.catch((thrown: unknown) => {
      throw sqlState(thrown) === lockNotAvailable ? busyError(arrival, lockTimeoutMs, thrown) : thrown;
    });
    return own(arrival, waiting);
  }

  /** Compares a known message with the new delivery. */
  async function compared(
    arrival: Arrival,
    ask: (text: string, params: readonly unknown[]) => Promise<readonly Readonly<Record<string, unknown>>[]>,
  ): Promise<"duplicate" | "differs"> {
    const { consumer, id, hash: own } = arrival;
    if (own === undefined) return "duplicate";
    const remembered = onlyValue(await ask(hash, [consumer, id]));
    return (remembered ?? own) === own ? "duplicate" : "differs";
  }

  return {
    async remember(tx, arrival, { retentionMs, lockTimeoutMs }) {
      const payload = arrival.storePayload ? messageValues(arrival.message).data : null;
      const params = [...memoryValues(arrival), payload, timeOf(arrival), retentionMs, lockLimit(lockTimeoutMs)];
      const answer = await patiently(arrival, lockTimeoutMs, write(tx, remember, params));
      const remembered = onlyValue(answer) as "new" | "known" | "too-old";
      return remembered === "known" ? compared(arrival, (text, given) => write(tx, text, given)) : remembered;
    },

    async keep(arrivals, { retentionMs, lockTimeoutMs }, signal) {
      const [first] = arrivals;
      if (first === undefined) return [];
      const { keep } = await statements(first.consumer);
      const given = JSON.stringify(arrivals.map(recordOf));
      const { rows } = await patiently(
        first,
        lockTimeoutMs,
        run(keep, [given, retentionMs, lockLimit(lockTimeoutMs)], signal),
      );
      const found: Remembered[] = [];
      for (const [index, arrival] of arrivals.entries()) {
        const row = rows[index];
        if (row?.old === true) found.push("too-old");
        else if (row?.new === true) found.push("new");
        else found.push(await compared(arrival, async (text, params) => (await run(text, params, signal)).rows));
      }
      return found;
    },

    async setAside(arrival, aside, { retentionMs, lockTimeoutMs }, signal) {
      const { setAside } = await statements(arrival.consumer);
      const inOne = setAside(recordOf(arrival), aside, { retentionMs, lockTimeoutMs }, signal);
      const adopted = await patiently(arrival, lockTimeoutMs, inOne);
      if (adopted !== "known") return adopted;
      return compared(arrival, async (text, params) => (await run(text, params, signal)).rows);
    },

    async handled(tx, arrival, row, epoch) {
      const { box } = await statements(arrival.consumer);
      const where = [row.lane, epoch, row.position, row.waiting ? (row.turn ?? 0) : null];
      const what = [arrival.consumer, arrival.id, arrival.handler ?? null, row.message.id];
      return onlyValue(await own(arrival, write(tx, handled, [...where, ...what, box]))) === true;
    },
  };
}

function statementsOf(schema: string, t: BoxTables, onPool: TransactionLibrary<ClientBase>) {
  return {
    box: t.box,
    keep: keepSql(schema, t),
    setAside: settingAside(schema, t, onPool),
  };
}

const checkViolated = "23514";

/**
 * Whether the data is at fault, not the database: a value that is too large, invalid, or refused by a check constraint.
 */
function isUnstorable(error: unknown): boolean {
  const state = sqlState(error) ?? "";
  return /^(?:22...|54000)$/.test(state) || (state === checkViolated && !lacksPartition(error));
}

/** A missing partition has the same SQLSTATE as a check violation. */
function lacksPartition(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if (at.message.includes("no partition of relation")) return true;
  }
  return false;
}

/**
 * Whether a session limit, a cancel or a lack of server resources ended the statement. A timeout in `pg` has no
 * SQLSTATE.
 */
function isServers(error: unknown): boolean {
  const state = sqlState(error);
  if (state !== undefined) return state === checkViolated || /^(?:57014|53...|58...)$/.test(state);
  return error instanceof Error && error.message === "Query read timeout";
}

function unstorable({ consumer, id }: Arrival, cause: unknown): PermanentError {
  const text = `the inbox of ${consumer} cannot store message ${id}: ${(cause as Error).message}`;
  return new PermanentError(text, { code: "message-invalid", cause });
}
