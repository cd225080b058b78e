import type { Message } from "../../message/message.js";
import { messageValues } from "../message-record.js";
import { columnsOf, messageColumns, usualColumns } from "./message-columns.js";
import type { appendSql } from "./write-sql.js";

/** The statements that append to a box, each in a form that locks keys first (`InTurn`) and one that does not. */
export type AppendSql = ReturnType<typeof appendSql>;

/**
 * The one statement, with its parameters, that appends these messages. There is at least one. With `locks`, it locks
 * those first.
 */
export function appendStatement(
  sql: AppendSql,
  messages: readonly Message[],
  locks: readonly string[],
): [AppendSql["one"], unknown[]] {
  const inTurn = locks.length > 0;
  const [first] = messages as [Message];
  if (messages.some(({ deliverAt }) => deliverAt !== undefined)) {
    const [alone, turn] = messages.some(({ scheduleKey }) => scheduleKey !== undefined)
      ? [sql.keyed, sql.keyedInTurn]
      : [sql.timed, sql.timedInTurn];
    return [inTurn ? turn : alone, many(messages, locks)];
  }
  if (messages.length > 1) return [inTurn ? sql.manyInTurn : sql.many, many(messages, locks)];
  const columns = inTurn ? messageColumns : columnsOf(first);
  const text = inTurn ? sql.oneInTurn : columns === usualColumns ? sql.usual : sql.one;
  return [text, [...oneMessage(first, columns), ...locks]];
}

function many(messages: readonly Message[], locks: readonly string[]): unknown[] {
  return [manyMessages(messages), ...(locks.length > 0 ? [JSON.stringify(locks)] : [])];
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
      return {
        ...values,
        due_at: message.deliverAt,
        schedule_key: message.scheduleKey,
        data: (values.data as Buffer).toString("base64"),
      };
    }),
  );
}
