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

/* The bare side of the comparisons: the code that a user would write for the same tables without the library. */

/** Handles a message between BEGIN and COMMIT. */
export type HandWork = (client: ClientBase, message: Message) => Promise<void>;

/** Handles ten messages at a time, each in a transaction of its own on the same pool. Returns messages per second. */
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

/** Remembers the message with the library's own statement, then runs the business insert. */
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
 * Remembers the message with the cheapest statement that does so. It does without three features of the library: a
 * check of the message's age, a limit on waiting for a concurrent duplicate, and a record of the handler.
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

/** Handles every message as new. */
export const nothingRemembered: HandWork = async (client, message) => {
  parsed(message);
  await businessInsert(client);
};

/** Decodes the data as the library does for a handler. */
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

/** Returns the statements that the library runs in the transaction of one message, without those of the handler. */
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
  // The first message also reads the schema version, so its statements are discarded.
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

/** Returns a function that fills the parameters recognised by `blanks` with other values. */
function withBlanks({ text, params }: Statement, blanks: readonly Recognise[]): (...values: unknown[]) => QueryConfig {
  const places = blanks.map((blank) => params.findIndex(blank));
  if (places.includes(-1)) throw new Error(`this statement lacks an expected parameter: ${text}`);
  return (...values) => {
    const filled = [...params];
    for (const [index, place] of places.entries()) filled[place] = values[index];
    return { text, values: filled };
  };
}
