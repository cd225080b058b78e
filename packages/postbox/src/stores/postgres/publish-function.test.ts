import { PGlite } from "@electric-sql/pglite";
import { createPgConfig } from "@electric-sql/pglite/node-postgres";
import { arbitraryMessage, gate, settlesWithin, testMessage } from "@postbox/testkit";
import { describeOn, describeOnEach, type PostgresTestData, postgresTestData } from "@postbox/testkit/servers";
import fc from "fast-check";
import pg from "pg";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { laneOf } from "../../internal/lane.js";
import { createMessage, type Message, type MessageInput } from "../../message/message.js";
import { createOutbox } from "../../outbox/outbox.js";
import type { Writers } from "../../store.js";
import { pgTransactions } from "../../transactions/pg.js";
import { WriterRanges } from "../writer-ranges.js";
import { keyLocks } from "./key-lock.js";
import { messageColumns, messageSelection } from "./message-columns.js";
import { type PostgresStore, postgresStore } from "./postgres-store.js";
import { messageInvalidState, messageTooLargeState } from "./publish-function.js";

const mebibyte = 1024 * 1024;

/** The SQL names of fields whose TypeScript names differ. */
const sqlNames: Readonly<Record<string, string>> = {
  time: "event_time",
  datacontenttype: "content_type",
  dataschema: "data_schema",
  deliverAt: "deliver_at",
};
const sqlName = (name: string) => sqlNames[name] ?? name;

const minimal = { id: "1", source: "/orders", type: "shop.orders.v1.OrderPlaced", time: "2026-01-31T12:00:00Z" };

const around = (bytes: number, change: (text: string) => Record<string, unknown>) => [
  change("x".repeat(bytes)),
  change("x".repeat(bytes + 1)),
  change(`${"x".repeat(bytes - 2)}ä`),
  change(`${"x".repeat(bytes - 1)}ä`),
];

const times = [
  "2026-01-31T12:00:00Z",
  "2026-01-31t12:00:00z",
  "2026-01-31T12:00:00.123456789+05:45",
  "0000-01-01T00:00:00-23:59",
  "2026-02-30T00:00:00Z",
  "2026-01-01T24:00:00Z",
  "2026-01-01T24:00:00.000Z",
  "2026-01-01T24:00:00.001Z",
  "2026-01-01T24:00:01Z",
  "2026-01-01T25:00:00Z",
  "2026-01-01T23:60:00Z",
  "2026-01-01T23:59:60Z",
  "2026-01-32T00:00:00Z",
  "2026-01-00T00:00:00Z",
  "2026-00-01T00:00:00Z",
  "2026-13-01T00:00:00Z",
  "2026-01-01T00:00:00+24:00",
  "2026-01-01T00:00:00+00:60",
  "2026-01-01T00:00:00",
  "2026-01-01 00:00:00Z",
  "2026-01-01T00:00Z",
  "2026-01-01T00:00:00.Z",
  "2026-01-01T00:00:00Z\n",
  "٢٠٢٦-01-01T00:00:00Z",
  "12026-01-01T00:00:00Z",
  "tomorrow",
  "",
];

/** Valid and invalid envelopes. `createMessage` decides which is which, and SQL has to agree. */
const cases: readonly Record<string, unknown>[] = [
  {},
  ...["id", "source", "type", "topic", "subject", "key", "dataschema", "datacontenttype"].flatMap((name) =>
    ["", " ", "a/b", "größe", "💌", "a\r\nHPUB x", "a\u0001", "a\u007f", "a\u0085", "\ufdd0", "\ufffe", "\uffff"].map(
      (text) => ({ [name]: text }),
    ),
  ),
  ...around(255, (id) => ({ id })),
  ...around(255, (type) => ({ type, topic: "t" })),
  ...around(255, (topic) => ({ topic })),
  ...around(255, (rest) => ({ datacontenttype: `a/${rest.slice(2)}` })),
  ...around(1024, (source) => ({ source })),
  ...around(1024, (subject) => ({ subject })),
  ...around(1024, (key) => ({ key })),
  ...around(1024, (dataschema) => ({ dataschema })),
  ...around(8192, (a) => ({ extensions: { a } })),
  ...around(8192, (a) => ({ headers: { a } })),
  ...["OrderPlaced", ".a", "a.", "a..b", "..", ".", "a.b.c", "ä.ö"].map((type) => ({ type })),
  ...times.flatMap((time) => [{ time }, { extensions: { expirytime: time } }]),
  ...[
    "application/json; charset=utf-8",
    "application/vnd.shop+json;v=1",
    "TEXT/Plain",
    "a!#$&^_.+-/b!#$&^_.+-",
    "a/b\u00a0; x",
    "a/b\u3000;x",
    "a/b;\u2028",
    "a/b ",
    "a/b x",
    "json",
    "a/b/c",
    "/b",
    "a/",
    "ä/b",
    "a b/c",
  ].map((datacontenttype) => ({ datacontenttype })),
  ...[
    ["correlationid", "c"],
    ["retries", 3],
    ["urgent", true],
    ["low", -2147483648],
    ["high", 2147483647],
    ["a", 2 ** 31],
    ["a", -(2 ** 31) - 1],
    ["a", 1.5],
    ["a", 1e300],
    ["a", null],
    ["a", {}],
    ["a", []],
    ["a", ""],
    ["a", "x\ny"],
    ["traceParent", "x"],
    ["a_b", "x"],
    ["", "x"],
    ["ä", "x"],
    ["abcdefghijklmnopqrst", "x"],
    ["abcdefghijklmnopqrstu", "x"],
    ["dataversion", "2.1"],
    ["dataversion", 2],
    ["dataversion", false],
    ["expirytime", 7],
    ["partitionkey", "k"],
    ["partitionkey", 7],
    ["partitionkey", ""],
    ...["specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "topic"].map(
      (name) => [name, "x"],
    ),
    ...["key", "headers"].map((name) => [name, "x"]),
  ].map(([name, value]) => ({ extensions: { [name as string]: value } })),
  { key: "mine", extensions: { partitionkey: "other" } },
  ...[
    ["idempotency_key", "order-1"],
    ["x-source", ""],
    ["A.b-c_9", "größe 💌"],
    ["x".repeat(128), "x"],
    ["x".repeat(129), "x"],
    ["Größe", "x"],
    ["", "x"],
    ["a b", "x"],
    ["a:b", "x"],
    ["a", "x\ny"],
    ["a", 1],
    ["a", null],
    ["a", {}],
    ...["ce-id", "CE_id", "cloudEvents_x", "Content-Type", "x-death", "X-First-Death-Queue", "x-last-death-reason"].map(
      (name) => [name, "x"],
    ),
    ...["x-delivery-count", "x-acquired-count", "Postbox-Attempt", "cell", "content-type2", "x-deaths", "postbox"].map(
      (n) => [n, "x"],
    ),
  ].map(([name, value]) => ({ headers: { [name as string]: value } })),
  // 1, 7, 26, 20, 14 and 16 bytes of id, source, type, time, topic and content type.
  { data: Buffer.alloc(mebibyte - 84, "x") },
  { data: Buffer.alloc(mebibyte - 83, "x") },
  { data: Buffer.alloc(mebibyte - 96, "x"), extensions: { ext: 10, f: false }, headers: { h: "" } },
  { data: Buffer.alloc(mebibyte - 95, "x"), extensions: { ext: 10, f: false }, headers: { h: "" } },
];

const columns = messageColumns.map(([name]) => name).join(", ");

interface Refusal {
  readonly state: string;
  readonly path: string;
}

function verdict(input: MessageInput): Message | Refusal {
  try {
    return createMessage(input);
  } catch (error) {
    const { code, path = "" } = error as { code: string; path?: string };
    const [first = "", ...rest] = path.split(/(?=\.)/);
    return {
      state: code === "message-too-large" ? messageTooLargeState : messageInvalidState,
      path: sqlName(first) + rest.join(""),
    };
  }
}

type Query = (text: string, params?: unknown[]) => Promise<{ readonly rows: readonly Record<string, unknown>[] }>;

/** `query` runs statements that may fail. */
function suite(data: PostgresTestData<pg.ClientBase>, query: Query): void {
  const { pool, schema } = data;
  let store: PostgresStore<pg.ClientBase>;

  beforeEach(async () => {
    await data.create();
    store = postgresStore({ pool, schema });
  });
  afterAll(data.drop);

  /** Removes all rows from `pending`, in order of position. Data is base64, which is fast to compare. */
  async function taken(): Promise<Record<string, unknown>[]> {
    const { rows } = await pool.query(
      `WITH gone AS (DELETE FROM ${schema}.outbox_pending p RETURNING p.position, p.lane, p.event_version, ${messageSelection("p")})
       SELECT * FROM gone ORDER BY position`,
    );
    return rows.map(({ position: _, ...row }) => ({ ...row, data: row.data.toString("base64") }));
  }

  const dataOf = (row: Record<string, unknown>) => Buffer.from(String(row.data), "base64").toString();

  /** Passes each field to `publish`, with the data as bytes. */
  async function publish(input: Record<string, unknown>, run: Query = query): Promise<unknown> {
    const { type, data: bytes = null, ...options } = input;
    const names = Object.keys(options).filter((name) => options[name] !== undefined);
    const values = names.map((name) =>
      name === "headers" || name === "extensions" ? JSON.stringify(options[name]) : options[name],
    );
    const named = names.map((name, index) => `, ${sqlName(name)} => $${index + 3}`).join("");
    const { rows } = await run(`SELECT ${schema}.publish($1, $2::bytea${named}) AS id`, [type, bytes, ...values]);
    return rows[0]?.id;
  }

  async function publishAll(inputs: readonly object[], strict = false): Promise<unknown[]> {
    const elements = inputs.map(({ data: bytes, ...rest }: { data?: Uint8Array }) => ({
      ...Object.fromEntries(Object.entries(rest).map(([name, value]) => [sqlName(name), value])),
      ...(bytes && { data_base64: Buffer.from(bytes).toString("base64") }),
    }));
    const { rows } = await query(`SELECT * FROM ${schema}.publish_all($1, $2) AS id`, [
      JSON.stringify(elements),
      strict,
    ]);
    return rows.map(({ id }) => id);
  }

  const input = ({ specversion: _, ...rest }: Message) => rest;
  const append = (messages: readonly Message[]) => store.transaction((tx) => store.append(tx, "outbox", messages));
  const refusalOf = async (call: Promise<unknown>) => {
    const error = await call.then(
      () => undefined,
      (thrown) => thrown,
    );
    return error && { state: error.code, path: error.column?.replace(/^messages\[0\]\./, ""), hint: error.hint };
  };

  it.each<[string, (given: Record<string, unknown>) => Promise<unknown>]>([
    ["publish", (given) => publish(given)],
    ["publish_all", (given) => publishAll([given])],
  ])("accepts and refuses by %s what TypeScript does, and says where; what it stores is the same", async (_, call) => {
    const accepted: Message[] = [];
    let refused = 0;
    for (const change of cases) {
      const given = { ...minimal, ...change };
      const expected = verdict(given as unknown as MessageInput);
      const refusal = await refusalOf(call(given));
      if ("state" in expected) {
        expect([change, refusal]).toEqual([change, { ...expected, hint: expect.stringMatching(/\.$/) }]);
        refused++;
      } else {
        expect([change, refusal]).toEqual([change, undefined]);
        accepted.push(expected);
      }
    }
    const ours = await taken();
    await append(accepted);
    expect(ours).toEqual(await taken());
    expect(refused).toBeGreaterThan(100);
    expect(accepted.length).toBeGreaterThan(50);
  });

  it("stores any message as the outbox does, alone and among others", async () => {
    const any = arbitraryMessage().map((message) => ({ time: minimal.time, ...message }));
    await fc.assert(
      fc.asyncProperty(fc.array(any, { minLength: 1, maxLength: 30 }), async (messages) => {
        await append(messages);
        const expected = await taken();
        for (const message of messages) await publish(input(message));
        expect(await taken()).toEqual(expected);
        expect(await publishAll(messages.map(input))).toEqual(messages.map(({ id }) => id));
        expect(await taken()).toEqual(expected);
      }),
      { numRuns: 6 },
    );
  });

  it("fills in what the outbox would", async () => {
    const outbox = createOutbox(store, {
      source: `/${(await pool.query("SELECT current_database()")).rows[0].current_database}`,
    });
    const before = Date.now();
    await store.transaction(async (tx) => {
      await outbox.in(tx).send({ type: minimal.type, key: "1", data: Buffer.from('{"orderId":"1"}') });
      await tx.query(`SELECT ${schema}.publish('${minimal.type}', '{"orderId":"1"}', key => '1')`);
    });
    const [theirs, ours] = await taken();
    const uuidv7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
    expect(ours).toEqual({ ...theirs, id: expect.stringMatching(uuidv7), time: expect.anything() });
    const time = String(ours?.time);
    expect(new Date(time).toISOString()).toBe(time);
    // The server's clock may differ from this process's.
    expect(Math.abs(Date.parse(time) - before)).toBeLessThan(60_000);
    expect(Number.parseInt(String(ours?.id).slice(0, 13).replace("-", ""), 16)).toBe(Date.parse(time));
  });

  it("takes the source of the call, then that of the setting, then the database's name", async () => {
    await store.transaction(async (tx) => {
      await tx.query("SET LOCAL postbox.source = '/billing'");
      await tx.query(`SELECT ${schema}.publish('a'), ${schema}.publish('b', source => '/b')`);
    });
    // After its transaction, such a setting is empty.
    await pool.query(`SELECT ${schema}.publish('c')`);
    const { rows } = await pool.query("SELECT '/' || current_database() AS source");
    expect((await taken()).map(({ source }) => source)).toEqual(["/billing", "/b", rows[0].source]);
  });

  it.each([
    ["a literal as text, byte for byte", `' {"b": 1.0,\n "a" :"ä"} '`, ' {"b": 1.0,\n "a" :"ä"} '],
    ["json as it is written", `'{"b" : 1}'::json`, '{"b" : 1}'],
    ["what makes json", "json_build_object('a', 1)", '{"a" : 1}'],
    ["jsonb as Postgres writes it", `'{"b":1,"a":2}'::jsonb`, '{"a": 2, "b": 1}'],
    ["bytes untouched", "'\\x7b7d'::bytea", "{}"],
    ["no data as no bytes", "NULL", ""],
    ["an empty text as no bytes", "''", ""],
    ["a null of JSON as that", "'null'", "null"],
    ["text of a text type", "'no {json', content_type => 'text/plain'", "no {json"],
    ["what stands behind escapes that only some readers mind", `'"\\u0000\\ud800"'`, '"\\u0000\\ud800"'],
  ])("takes %s", async (_, sql, stored) => {
    await pool.query(`SELECT ${schema}.publish('t', ${sql})`);
    expect((await taken()).map(dataOf)).toEqual([stored]);
  });

  it("takes no text for JSON that is none, whatever JSON is called", async () => {
    for (const type of [
      "application/json",
      "Application/JSON;charset=utf-8",
      "text/json",
      "application/x+json ; v=1",
    ]) {
      for (const text of ["{", "{'a':1}", " ", "\ufeff1", "NaN"]) {
        const call = query(`SELECT ${schema}.publish('t', $1, content_type => $2)`, [text, type]);
        expect(await refusalOf(call)).toMatchObject({ state: messageInvalidState, path: "data" });
      }
    }
    expect(await taken()).toEqual([]);
  });

  it("reads data in publish_all as CloudEvents do", async () => {
    await pool.query(`SELECT ${schema}.publish_all('[
      {"type": "t", "data": {"b": 1}}, {"type": "t", "data": "x"}, {"type": "t", "data": null}, {"type": "t"},
      {"type": "t", "data": "x", "content_type": "text/plain"}, {"type": "t", "data": [1], "content_type": "text/plain"},
      {"type": "t", "data_base64": "AA==", "key": null}]')`);
    const stored = (await taken()).map(dataOf);
    expect(stored).toEqual(['{"b": 1}', '"x"', "null", "", "x", "[1]", "\0"]);
  });

  it.each([
    ["no array", '{"type":"t"}', "messages"],
    ["nothing", null, "messages"],
    ["an element that is no object", "[1]", "messages[0]"],
    ["a misspelt field", '[{"type":"t"},{"type":"t","kye":"1"}]', "messages[1].kye"],
    ["a number as a key", '[{"type":"t","key":7}]', "messages[0].key"],
    ["no type", '[{"type":"t"},{}]', "messages[1].type"],
    ["base64 that is none", '[{"type":"t","data_base64":"a?b="}]', "messages[0].data_base64"],
    ["data twice", '[{"type":"t","data_base64":"AA==","data":1}]', "messages[0].data_base64"],
    ["a fault in an extension", '[{"type":"t","extensions":{"A":1}}]', "messages[0].extensions.A"],
    ["extensions that are no object", '[{"type":"t","extensions":[1]}]', "messages[0].extensions"],
    [
      "a partition key that is none",
      '[{"type":"t","extensions":{"partitionkey":{}}}]',
      "messages[0].extensions.partitionkey",
    ],
    ["a day that no calendar has", '[{"type":"t","deliver_at":"2036-02-30T00:00:00Z"}]', "messages[0].deliver_at"],
    ["a time without a zone", '[{"type":"t","deliver_at":"2036-02-03T00:00:00"}]', "messages[0].deliver_at"],
  ])("refuses %s in publish_all, and writes nothing", async (_, json, column) => {
    const refused = {
      code: messageInvalidState,
      column,
      message: expect.stringContaining(column),
      hint: expect.anything(),
    };
    await expect(query(`SELECT ${schema}.publish_all($1)`, [json])).rejects.toMatchObject(refused);
    expect(await taken()).toEqual([]);
  });

  it("cannot be given what no text can be", async () => {
    const halves = 'SELECT publish_all(E\'[{"type":"t","key":"\\\\ud800"}]\')'.replace(
      "publish_all",
      `${schema}.publish_all`,
    );
    await expect(query(halves)).rejects.toMatchObject({ code: "22P02" });
    await expect(query(`SELECT ${schema}.publish('t', key => $1)`, ["a\0b"])).rejects.toMatchObject({
      code: "22021",
    });
    expect(await taken()).toEqual([]);
  });

  it("keeps whatever is in the values", async () => {
    const hostile = [
      "'; DROP SCHEMA x CASCADE; --",
      '"',
      "\\",
      "\\x00",
      "$$",
      "$function$",
      "$1",
      "%s %I",
      "{}",
      "null",
      "é💌",
    ];
    for (const text of hostile) {
      const all = { id: text, source: text, topic: text, subject: text, key: text, dataschema: text };
      const given = {
        ...minimal,
        ...all,
        type: text,
        headers: { h: text },
        extensions: { e: text },
        data: Buffer.from(text),
      };
      await append([createMessage(given)]);
      await publish(given);
      await publishAll([given]);
      const [expected, one, many] = await taken();
      expect(one).toEqual(expected);
      expect(many).toEqual(expected);
      const { dataschema: _, ...columns } = all;
      expect(one).toMatchObject({ ...columns, data_schema: text });
    }
  });

  it.each([
    ["a", 10],
    ["order-1", 11],
    ["größe", 19],
    ["💌", 63],
  ])("puts the key, or the id, %j into lane %i", async (text, lane) => {
    await pool.query(`SELECT ${schema}.publish('t', key => $1), ${schema}.publish('t', id => $1)`, [text]);
    expect((await taken()).map((row) => row.lane)).toEqual([lane, lane]);
  });

  it("puts any key into the lane that TypeScript does", async () => {
    const key = fc
      .string({ unit: "binary", minLength: 1, maxLength: 40 })
      .filter((text) => !("state" in verdict({ ...minimal, key: text })));
    await fc.assert(
      fc.asyncProperty(fc.array(key, { minLength: 1, maxLength: 100 }), async (keys) => {
        await publishAll(keys.map((text) => ({ type: "t", key: text })));
        expect((await taken()).map((row) => [row.key, row.lane])).toEqual(keys.map((text) => [text, laneOf(text)]));
      }),
      { numRuns: 10 },
    );
  });

  it("appends a thousand in their order, in one statement, and answers with their ids", async () => {
    await pool.query(`CREATE TABLE ${schema}.inserts (rows bigint);
      CREATE FUNCTION ${schema}.count_insert() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN INSERT INTO ${schema}.inserts SELECT count(*) FROM added; RETURN NULL; END $$;
      CREATE TRIGGER count_insert AFTER INSERT ON ${schema}.outbox_pending REFERENCING NEW TABLE AS added
        FOR EACH STATEMENT EXECUTE FUNCTION ${schema}.count_insert()`);
    try {
      const keys = Array.from({ length: 1000 }, (_, index) => `k${(index * 7919) % 1000}`);
      const ids = await publishAll(keys.map((key) => ({ type: "t", key })));
      expect((await pool.query(`SELECT rows::int FROM ${schema}.inserts`)).rows).toEqual([{ rows: 1000 }]);
      const rows = await taken();
      expect(rows.map(({ key }) => key)).toEqual(keys);
      expect(rows.map(({ id }) => id)).toEqual(ids);
      expect(new Set(ids).size).toBe(1000);
      expect(await publishAll([])).toEqual([]);
    } finally {
      await pool.query(`DROP FUNCTION ${schema}.count_insert CASCADE; DROP TABLE ${schema}.inserts`);
    }
  });

  it("leaves nothing behind when its transaction rolls back", async () => {
    const failed = store.transaction(async (tx) => {
      await tx.query(`SELECT ${schema}.publish('a', deliver_at => 'tomorrow')`);
      await tx.query(`SELECT ${schema}.publish_all('[{"type":"a"},{"type":"b"}]')`);
      throw new Error("no");
    });
    await expect(failed).rejects.toThrow("no");
    expect((await pool.query(`SELECT FROM ${schema}.outbox_messages`)).rowCount).toBe(0);
  });

  it("replaces and cancels by the schedule key, as the outbox does", async () => {
    const later = "2099-12-31T23:59:59Z";
    const given = { ...minimal, deliver_at: later, schedule_key: "a" };
    const outbox = createOutbox(store, { source: "/orders" });
    const scheduled = async () =>
      (await pool.query(`SELECT id, schedule_key FROM ${schema}.outbox_scheduled ORDER BY position`)).rows.map(
        ({ id, schedule_key }) => [id, schedule_key],
      );
    const cancel = async (type: string, key: string) =>
      (await query(`SELECT ${schema}.cancel($1, $2) AS found`, [type, key])).rows[0]?.found;
    await publish({ ...given, id: "first" });
    await store.transaction((tx) =>
      outbox.in(tx).send({ id: "second", type: minimal.type, deliverAt: later, scheduleKey: "a" }),
    );
    expect(await scheduled()).toEqual([["second", "a"]]);
    // Of two in one call, the last one wins; positions follow the call, not the keys.
    await publishAll([
      { ...given, id: "1" },
      { ...given, id: "2", schedule_key: "c" },
      { ...given, id: "3", deliver_at: "2020-01-01T00:00:00Z", schedule_key: "b" },
      { ...given, id: "4" },
      { ...minimal, id: "5", deliver_at: later },
    ]);
    expect(await scheduled()).toEqual([
      ["2", "c"],
      ["3", "b"],
      ["4", "a"],
      ["5", null],
    ]);
    expect(await taken()).toEqual([]);
    expect(await cancel("another.Type", "a")).toBe(false);
    expect(await cancel(minimal.type, "a")).toBe(true);
    expect(await cancel(minimal.type, "a")).toBe(false);
    const ofOutbox = store.transaction((tx) => outbox.in(tx).cancel(minimal, "b"));
    expect(await ofOutbox).toBe(true);
    expect(await scheduled()).toEqual([
      ["2", "c"],
      ["5", null],
    ]);
  });

  it("refuses a schedule key that cannot be", async () => {
    const refused = { state: messageInvalidState, path: "schedule_key" };
    for (const schedule_key of ["", "a\u0001", "x".repeat(1025)]) {
      const given = { ...minimal, deliver_at: "2099-12-31T23:59:59Z", schedule_key };
      expect(await refusalOf(publish(given))).toMatchObject(refused);
      expect(await refusalOf(query(`SELECT ${schema}.cancel('t', $1)`, [schedule_key]))).toMatchObject(refused);
    }
    expect(await refusalOf(publish({ ...minimal, schedule_key: "a" }))).toMatchObject(refused);
    expect(await refusalOf(query(`SELECT ${schema}.cancel('t', NULL)`, []))).toMatchObject(refused);
    expect(await refusalOf(query(`SELECT ${schema}.cancel('', 'a')`, []))).toMatchObject({ ...refused, path: "type" });
  });

  it("leaves a transaction usable that goes back to before a refusal", async () => {
    await store.transaction(async (tx) => {
      await tx.query(`SAVEPOINT before; SELECT ${schema}.publish('a')`);
      await expect(tx.query(`SELECT ${schema}.publish('')`)).rejects.toMatchObject({ code: messageInvalidState });
      await tx.query(`ROLLBACK TO before`);
      await tx.query(`SELECT ${schema}.publish('b')`);
    });
    expect((await taken()).map(({ type }) => type)).toEqual(["b"]);
  });

  it("schedules what is to be delivered later, and nothing else", async () => {
    const later = "2099-12-31T23:59:59.5+01:00";
    const given = { ...minimal, key: "k", data: Buffer.from("1"), extensions: { dataversion: "2" } };
    await publish({ ...given, id: "later", deliver_at: later });
    await publish({ ...given, id: "past", deliver_at: "2020-01-01T00:00:00Z" });
    const many = [{ deliver_at: later }, {}, { deliver_at: "2020-01-01T00:00:00Z" }, { deliver_at: later }];
    await publishAll(many.map((more, index) => ({ ...given, id: `all-${index}`, ...more })));
    for (const moment of ["infinity", "-infinity", "10000-01-01T00:00:00Z"]) {
      const refused = { state: messageInvalidState, path: "deliver_at" };
      expect(await refusalOf(publish({ ...given, deliver_at: moment }))).toMatchObject(refused);
    }
    const { rows } = await pool.query(
      `SELECT due_at, lane, event_version, ${messageSelection("s")} FROM ${schema}.outbox_scheduled s ORDER BY position`,
    );
    expect(rows.map(({ id, due_at }) => [id, due_at.getTime()])).toEqual(
      ["later", "all-0", "all-3"].map((id) => [id, Date.parse(later)]),
    );
    const pending = await taken();
    expect(pending.map(({ id }) => id)).toEqual(["past", "all-1", "all-2"]);
    const { due_at: _, data: bytes, ...scheduled } = rows[0];
    expect({ ...scheduled, id: "past", data: bytes.toString("base64") }).toEqual(pending[0]);
  });

  it("gives its transaction a number before any row has a position", async () => {
    await pool.query(`CREATE FUNCTION ${schema}.require_number() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF NEW.position IS NULL OR pg_current_xact_id_if_assigned() IS NULL THEN RAISE 'too late'; END IF;
        RETURN NEW;
      END $$;
      CREATE TRIGGER require_number BEFORE INSERT ON ${schema}.outbox_pending
        FOR EACH ROW EXECUTE FUNCTION ${schema}.require_number()`);
    try {
      // nextval also assigns a transaction number, but only when it writes to the log: every 32nd time.
      for (const strict of [false, true, false, true]) {
        await pool.query(`SELECT ${schema}.publish('t', key => 'k', strict_key_order => ${strict})`);
        await pool.query(`SELECT ${schema}.publish('t', '1'::jsonb, key => 'k', strict_key_order => ${strict})`);
        await publishAll([{ type: "t", key: "k" }, { type: "t" }], strict);
      }
      const bare = `INSERT INTO ${schema}.outbox_pending (box, lane, id, source, type, content_type, topic, extensions, headers, data)
        VALUES (0, 1, '1', 's', 't', 'a/b', 't', '{}', '{}', '')`;
      // At least one of two in a row: without its own statement, the transaction would have no number.
      const answers = await Promise.allSettled([query(bare), query(bare)]);
      expect(answers).toContainEqual({ status: "rejected", reason: expect.objectContaining({ message: "too late" }) });
    } finally {
      await pool.query(`DROP FUNCTION ${schema}.require_number CASCADE`);
    }
  });

  it("with strict_key_order takes the locks that the outbox takes", async () => {
    const key = fc
      .string({ unit: "grapheme", minLength: 1, maxLength: 40 })
      .filter((text) => !("state" in verdict({ ...minimal, key: text })));
    await fc.assert(
      fc.asyncProperty(fc.array(key, { minLength: 1, maxLength: 30 }), async (keys) => {
        const messages = keys.map((text, index) => testMessage(`m${index}`, { key: text }));
        const held = await store.transaction(async (tx) => {
          const twice = [...keys, ...keys].map((text) => ({ type: "t", key: text }));
          const all = [...twice, { type: "t" }, { type: "t", key: "later", deliver_at: "2099-01-01T00:00:00Z" }];
          await tx.query(`SELECT ${schema}.publish_all($1, strict_key_order => true)`, [JSON.stringify(all)]);
          const { rows } =
            await tx.query(`SELECT ((classid::bigint << 32) | objid::bigint)::text AS number FROM pg_locks
            WHERE locktype = 'advisory' AND objsubid = 1 AND pid = pg_backend_pid()`);
          return rows.map(({ number }) => number);
        });
        expect(held.sort()).toEqual([...keyLocks(schema, "outbox", messages)].sort());
      }),
      // The function receives JSON, so these are characters that must be escaped and characters that need not.
      { numRuns: 10, examples: [[["order-1", '"', "\\", '\\"\\\\', "\u2028", "/", "é💌"]]] },
    );
  });

  it("means the same in any session", async () => {
    const given = { ...minimal, key: "k\\n'", headers: { h: "\\" }, data: Buffer.from("\\x41") };
    await append([createMessage(given)]);
    await store.transaction(async (tx) => {
      await tx.query(`SET LOCAL standard_conforming_strings = off; SET LOCAL escape_string_warning = off;
        SET LOCAL bytea_output = escape; SET LOCAL timezone = 'Asia/Kolkata'; SET LOCAL datestyle = 'German'`);
      await publish(given, (text, params) => tx.query(text, params));
      await tx.query(`SAVEPOINT refused; SELECT ${schema}.publish('t')`);
      const refused = tx.query(`SELECT ${schema}.publish('t', topic => E'a\\u0085')`);
      await expect(refused).rejects.toThrow("control character");
      await tx.query("ROLLBACK TO refused");
      await tx.query(`SELECT ${schema}.publish('t')`);
    });
    const [theirs, ours, last] = await taken();
    expect(ours).toEqual(theirs);
    expect(Math.abs(Date.parse(String(last?.time)) - Date.now())).toBeLessThan(60_000);
  });

  it("does not hear of what a search_path puts before Postgres's own", async () => {
    const trap = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$";
    await pool.query(`CREATE SCHEMA ${schema}_trap; SET search_path = ${schema}_trap;
      CREATE FUNCTION sha256(bytea) RETURNS bytea ${trap};
      CREATE FUNCTION convert_to(text, name) RETURNS bytea ${trap};
      CREATE FUNCTION current_setting(text, boolean) RETURNS text ${trap};
      CREATE FUNCTION pg_current_xact_id() RETURNS xid8 ${trap};
      CREATE FUNCTION jsonb_typeof(jsonb) RETURNS text ${trap};
      CREATE FUNCTION trap(text, text) RETURNS text ${trap};
      CREATE FUNCTION trapped(text, text) RETURNS boolean ${trap};
      CREATE OPERATOR || (FUNCTION = trap, LEFTARG = text, RIGHTARG = text);
      CREATE OPERATOR ~ (FUNCTION = trapped, LEFTARG = text, RIGHTARG = text);
      CREATE OPERATOR = (FUNCTION = trapped, LEFTARG = text, RIGHTARG = text);
      CREATE TABLE outbox_pending (trap int);
      RESET search_path`);
    try {
      await store.transaction(async (tx) => {
        await tx.query(`CREATE TEMP TABLE outbox_scheduled (trap int) ON COMMIT DROP;
          SET LOCAL search_path = ${schema}_trap, pg_temp, pg_catalog`);
        await expect(async () => tx.query("SAVEPOINT s; SELECT 'a'::text || 'b'::text")).rejects.toThrow("trapped");
        await tx.query("ROLLBACK TO s");
        await tx.query(`SELECT ${schema}.publish('a.b', '{}', key => 'k', extensions => '{"a": "b"}', strict_key_order => true),
          ${schema}.publish('a.b', '{}', deliver_at => 'tomorrow')`);
        await tx.query(`SELECT ${schema}.publish_all('[{"type": "a.b", "data": 1, "headers": {"h": "x"}}]')`);
      });
      expect((await taken()).map(({ topic }) => topic)).toEqual(["a", "a"]);
    } finally {
      await pool.query(`DROP SCHEMA ${schema}_trap CASCADE`);
    }
  });

  it("is read by a relay as the message that the outbox would have made", async () => {
    const given = { ...minimal, key: "k", headers: { h: "x" }, extensions: { a: 1 }, data: Buffer.from("[1]") };
    await publish(given);
    const box = store.box("outbox");
    const { rows } = await box.read(Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 })));
    expect(rows.map(({ message }) => message)).toEqual([{ ...createMessage(given), data: new Uint8Array(given.data) }]);
  });
}

describeOnEach("postgres", ({ url }) => {
  // Thousands of small transactions, none of which has to survive a crash.
  const connect = () => new pg.Pool({ connectionString: url, max: 6, options: "-c synchronous_commit=off" });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  suite(data, (text, params) => pool.query(text, params));

  it("takes no JSON that is nested deeper than the server reads", async () => {
    const call = pool.query(`SELECT ${schema}.publish('t', $1)`, ["[".repeat(1_000_000)]);
    await expect(call).rejects.toMatchObject({ code: messageInvalidState, column: "data" });
  });

  it("shows a reader its transaction as a writer in progress", async () => {
    const store = postgresStore({ pool, schema });
    for (const call of [`publish('t')`, `publish_all('[{"type":"t"}]')`]) {
      await store.transaction(async (tx) => {
        await tx.query(`SELECT ${schema}.${call}`);
        const { rows } = await tx.query("SELECT pg_current_xact_id()::text AS number");
        const { writers } = await store.box("outbox").read([{ lane: 0, limit: 1 }]);
        const own = WriterRanges.one(Number(rows[0].number));
        expect(own.without(writers as Writers).none).toBe(true);
      });
    }
  });

  it("with strict_key_order waits for an outbox that does, and gets its position after it", async () => {
    const store = postgresStore({ pool, schema });
    const outbox = createOutbox(store, { source: "/s", strictKeyOrder: true });
    const [written, go] = [gate(), gate()];
    const first = store.transaction(async (tx) => {
      await outbox.in(tx).send({ id: "first", type: "t", key: 'k"\\' });
      written.open();
      await go.opened;
    });
    await written.opened;
    const second = pool.query(`SELECT ${schema}.publish('t', id => 'second', key => $1, strict_key_order => true)`, [
      'k"\\',
    ]);
    const other = pool.query(`SELECT ${schema}.publish('t', id => 'other', key => 'k', strict_key_order => true)`);
    await other;
    expect(await settlesWithin(second, 150)).toBe(false);
    go.open();
    await Promise.all([first, second]);
    const { rows } = await pool.query(`SELECT id FROM ${schema}.outbox_pending ORDER BY position`);
    expect(rows.map(({ id }) => id)).toEqual(["first", "other", "second"]);
  });

  describe("called by a role that may only publish", () => {
    const role = `${schema}_publisher`;
    let client: pg.PoolClient;

    beforeEach(async () => {
      await pool.query(`CREATE ROLE ${role}; GRANT USAGE ON SCHEMA ${schema} TO ${role};
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ${schema} TO ${role}`);
      client = await pool.connect();
      await client.query(`SET ROLE ${role}`);
    });
    afterEach(async () => {
      await client.query("RESET ROLE");
      client.release();
      await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    });

    it("appends and schedules", async () => {
      for (const data of ["'{}'", "'{}'::json", "'{}'::jsonb", "'\\x7b7d'::bytea"]) {
        await client.query(
          `SELECT ${schema}.publish('t', ${data}), ${schema}.publish('t', ${data}, deliver_at => 'tomorrow')`,
        );
      }
      await client.query(`SELECT ${schema}.publish_all('[{"type":"t"}]', strict_key_order => true)`);
      const { rows } = await pool.query(
        `SELECT status, count(*)::int FROM ${schema}.outbox_messages GROUP BY status ORDER BY 1`,
      );
      expect(rows).toEqual([
        { status: "pending", count: 5 },
        { status: "scheduled", count: 4 },
      ]);
    });

    it("replaces and cancels", async () => {
      for (const day of ["tomorrow", "today"]) {
        await client.query(`SELECT ${schema}.publish('t', deliver_at => '${day}', schedule_key => 'a')`);
      }
      expect((await pool.query(`SELECT FROM ${schema}.outbox_scheduled`)).rowCount).toBe(1);
      expect((await client.query(`SELECT ${schema}.cancel('t', 'a') AS found`)).rows).toEqual([{ found: true }]);
    });

    it("is told what is wrong with a message", async () => {
      const call = client.query(`SELECT ${schema}.publish('t', topic => '')`);
      await expect(call).rejects.toMatchObject({ code: messageInvalidState, column: "topic" });
    });

    it.each([
      ["a row of its own", "INSERT INTO S.outbox_pending (box, lane, id) VALUES (0, 1, 'x')"],
      [
        "a position of its own",
        "INSERT INTO S.outbox_pending (box, lane, position) OVERRIDING SYSTEM VALUE VALUES (0, 1, 9223372036854775807)",
      ],
      ["a look at the messages of others", "SELECT FROM S.outbox_pending"],
      ["a look at all messages", "SELECT FROM S.outbox_messages"],
      ["the next position", "SELECT nextval('S.outbox_pending_position_seq')"],
      ["a message that was not checked", "SELECT S.publish_append(ARRAY[]::S.outbox_scheduled[], false)"],
    ])("is refused %s", async (_, text) => {
      await expect(client.query(text.replaceAll("S.", `${schema}.`))).rejects.toMatchObject({ code: "42501" });
    });
  });

  it("lets no role publish that only may use the schema", async () => {
    const role = `${schema}_reader`;
    await pool.query(`CREATE ROLE ${role}; GRANT USAGE ON SCHEMA ${schema} TO ${role};
      GRANT SELECT ON ALL TABLES IN SCHEMA ${schema} TO ${role}`);
    const client = await pool.connect();
    try {
      await client.query(`SET ROLE ${role}`);
      await expect(client.query(`SELECT ${schema}.publish('t')`)).rejects.toMatchObject({ code: "42501" });
      await expect(client.query(`SELECT ${schema}.publish_all('[]')`)).rejects.toMatchObject({ code: "42501" });
      await expect(client.query(`SELECT ${schema}.cancel('t', 'a')`)).rejects.toMatchObject({ code: "42501" });
    } finally {
      await client.query("RESET ROLE");
      client.release();
      await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });

  it("lets a role that has the library's columns only append, and choose no position", async () => {
    const role = `${schema}_producer`;
    await pool.query(`CREATE ROLE ${role}; GRANT USAGE ON SCHEMA ${schema} TO ${role};
      GRANT SELECT ON ${schema}.migration TO ${role};
      GRANT INSERT (box, lane, ${columns}) ON ${schema}.outbox_pending TO ${role};
      GRANT INSERT (box, lane, due_at, ${columns}) ON ${schema}.outbox_scheduled TO ${role}`);
    const own = new pg.Pool({ connectionString: url, max: 1, options: `-c role=${role}` });
    try {
      const store = postgresStore({ pool: own, schema });
      await store.transaction(async (tx) => {
        await store.append(tx, "outbox", [testMessage("1")]);
        await store.append(tx, "outbox", [
          testMessage("2"),
          testMessage("3", { deliverAt: new Date(Date.now() + 60_000) }),
        ]);
      });
      const { rows } = await pool.query(`SELECT id FROM ${schema}.outbox_messages ORDER BY id`);
      expect(rows.map(({ id }) => id)).toEqual(["1", "2", "3"]);
      const chosen = `INSERT INTO ${schema}.outbox_pending (box, lane, position, id, source, type, content_type, topic, extensions, headers, data)
        OVERRIDING SYSTEM VALUE VALUES (0, 1, 9007199254740991, 'x', 's', 't', 'a/b', 't', '{}', '{}', '')`;
      await expect(own.query(chosen)).rejects.toMatchObject({ code: "42501" });
      await pool.query(`GRANT INSERT (position, schedule_key), SELECT, UPDATE, DELETE ON ${schema}.outbox_scheduled TO ${role};
        GRANT USAGE ON SEQUENCE ${schema}.outbox_scheduled_position_seq TO ${role}`);
      const keyed = testMessage("4", { deliverAt: new Date(Date.now() + 60_000), scheduleKey: "a" });
      await store.transaction((tx) => store.append(tx, "outbox", [keyed]));
      await store.transaction((tx) => store.append(tx, "outbox", [keyed]));
      expect(await store.transaction((tx) => store.cancel(tx, "outbox", keyed.type, "a"))).toBe(true);
    } finally {
      await own.end();
      await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });

  it("takes values of any collation", async () => {
    const blurred = "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    await pool.query(`CREATE COLLATION ${schema}.blurred ${blurred};
      CREATE TABLE ${schema}.orders (id text COLLATE ${schema}.blurred, name text COLLATE "POSIX");
      INSERT INTO ${schema}.orders VALUES ('Order-1', 'n')`);
    for (const call of [
      "publish('a.B', json_build_object('id', id), key => id)",
      "publish('a.B', id, key => id, content_type => 'Text/Plain', event_time => '2026-01-31T12:00:00Z')",
      "publish('a.B', id, key => id, subject => name, content_type => 'Text/Plain')",
      "publish_all(jsonb_build_array(jsonb_build_object('type', 'a.B', 'key', id, 'headers', jsonb_build_object('H', id))))",
    ]) {
      await pool.query(`SELECT ${schema}.${call} FROM ${schema}.orders`);
    }
    const schedule = `publish('a.B', key => id, deliver_at => 'tomorrow', schedule_key => id)`;
    await pool.query(`SELECT ${schema}.${schedule} FROM ${schema}.orders`);
    await pool.query(`SELECT ${schema}.cancel('a.B', lower(id)) FROM ${schema}.orders`);
    const cancelled = await pool.query(`SELECT ${schema}.cancel('a.B', id) AS found FROM ${schema}.orders`);
    expect(cancelled.rows).toEqual([{ found: true }]);
    const { rows } = await pool.query(`SELECT topic, key, lane FROM ${schema}.outbox_pending`);
    expect(rows).toEqual(Array.from({ length: 4 }, () => ({ topic: "a", key: "Order-1", lane: laneOf("Order-1") })));
  });
});

// With PGlite's bridge to `pg`, an error in a statement with parameters breaks the connection. Those statements bypass
// it.
describeOn({ title: "PGlite" }, () => {
  const database = new PGlite();
  const connect = () => new pg.Pool(createPgConfig(database));
  suite(postgresTestData({ connect, transactions: pgTransactions }), (text, params) => database.query(text, params));
});
