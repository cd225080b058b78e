import type { ClientBase, QueryConfig } from "pg";
import type { Message } from "postbox";
import { pgTransactions, postgresStore } from "postbox/postgres";
import type { TransactionLibrary } from "postbox/store";
import { businessInsert, businessRows } from "../business.js";
import { handMadeRow } from "../outbox/by-hand.js";
import { consume } from "./consume.js";
import { newMessages } from "./messages.js";
import { concurrency, consumer, type RouterKind } from "./routers.js";
import type { InboxSchema } from "./schema.js";

/*
 * What somebody would write who has the same tables and no library: the bare side of the comparisons.
 */

/** What is done with a message between BEGIN and COMMIT. */
export type HandWork = (client: ClientBase, message: Message) => Promise<void>;

/** Messages per second, ten at once, each in a transaction of its own on the same pool. */
export async function consumeByHand(
  { pool }: InboxSchema,
  messages: readonly Message[],
  work: HandWork,
): Promise<number> {
  const rest = messages.values();
  const worker = async () => {
    for (const message of rest) {
      const client = await pool.connect();
      let failed = true;
      try {
        await client.query("BEGIN");
        await work(client, message);
        await client.query("COMMIT");
        failed = false;
      } finally {
        client.release(failed);
      }
    }
  };
  const started = performance.now();
  await Promise.all(Array.from({ length: concurrency }, worker));
  const seconds = (performance.now() - started) / 1000;
  const done = await businessRows(pool);
  if (done !== messages.length) throw new Error(`of ${messages.length} messages ${done} were handled`);
  return messages.length / seconds;
}

/** Remembers with the statement that the library has for it, and inserts. */
export async function sameStatements(schema: InboxSchema, kind: RouterKind): Promise<HandWork> {
  const [sample] = newMessages(1) as [Message];
  const [remember, ...others] = await recorded(schema, kind, sample);
  if (remember === undefined || others.length > 1) throw new Error("these are not the statements of an inbox");
  const remembering = withBlanks(remember, [is(sample.id), is(timeOf(sample))]);
  const append = others.map((other) => withBlanks(other, [isNumber, isId, isTime, is(sample.key), Buffer.isBuffer]))[0];
  return async (client, message) => {
    const { rows } = await client.query(remembering(message.id, timeOf(message)));
    if (rows[0].remembered !== "new") return;
    parsed(message);
    await businessInsert(client);
    if (append === undefined) return;
    const { lane, id, time, key, data } = handMadeRow();
    await client.query(append(lane, id, time, key, data));
  };
}

/**
 * Remembers with the least that does it: nobody asks how old a message is, waits for another one only for so long, or
 * hears of its handler.
 */
export function plainInsert({ memory }: InboxSchema): HandWork {
  const text = `INSERT INTO ${memory} (consumer, id, type, source, topic, since, processed_at)
    VALUES ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp()) ON CONFLICT DO NOTHING`;
  return async (client, message) => {
    const { id, type, source, topic } = message;
    const { rowCount } = await client.query(text, [consumer, id, type, source, topic]);
    if (rowCount !== 1) return;
    parsed(message);
    await businessInsert(client);
  };
}

/** Every message is new. */
export const nothingRemembered: HandWork = async (client, message) => {
  parsed(message);
  await businessInsert(client);
};

/** As a handler gets it. */
function parsed({ data }: Message): unknown {
  return JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString());
}

function timeOf({ time }: Message): number {
  return Date.parse(time as string);
}

interface Statement {
  readonly text: string;
  readonly params: readonly unknown[];
}

/** What the library itself runs in the transaction of one message, beside what the handler does. */
async function recorded(schema: InboxSchema, kind: RouterKind, message: Message): Promise<readonly Statement[]> {
  const statements: Statement[] = [];
  const library = pgTransactions(schema.pool);
  const transactions: TransactionLibrary<ClientBase, "postgres"> = {
    ...library,
    executor(tx) {
      const execute = library.executor(tx);
      return (statement, params) => {
        statements.push({ text: typeof statement === "string" ? statement : statement.text, params });
        return execute(statement, params);
      };
    },
  };
  const store = postgresStore({ pool: schema.pool, schema: schema.name, transactions });
  // At first it also looks at the version of the schema.
  await consume(schema, kind, newMessages(1), { store });
  statements.length = 0;
  await consume(schema, kind, [message], { store });
  return statements;
}

type Recognise = (value: unknown) => boolean;
const is =
  (expected: unknown): Recognise =>
  (value) =>
    value === expected;
const isNumber: Recognise = (value) => typeof value === "number";
const isId: Recognise = (value) => typeof value === "string" && /^[0-9a-f]{8}-[0-9a-f]{4}-7/.test(value);
const isTime: Recognise = (value) => typeof value === "string" && /^\d{4}-\d\d-\d\dT/.test(value);

/** The statement with other values in the places of these. */
function withBlanks({ text, params }: Statement, blanks: readonly Recognise[]): (...values: unknown[]) => QueryConfig {
  const places = blanks.map((blank) => params.findIndex(blank));
  if (places.includes(-1)) throw new Error(`this statement has not what was looked for: ${text}`);
  return (...values) => {
    const filled = [...params];
    for (const [index, place] of places.entries()) filled[place] = values[index];
    return { text, values: filled };
  };
}
