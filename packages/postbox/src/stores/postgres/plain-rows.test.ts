import { testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { postgresStore } from "./postgres-store.js";

/* Rows are read in the server's own form, so neither the pool's parsers nor session settings change a message. */

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const every = Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 }));
  const messages = [
    testMessage("every byte", { data: Uint8Array.from({ length: 512 }, (_, at) => at % 256) }),
    testMessage("nothing", { data: new Uint8Array() }),
    testMessage("backslashes", { data: new TextEncoder().encode("\\x00 \\\\ \\101 ü") }),
    testMessage("large", { data: new Uint8Array(20_000).fill(7), headers: { "x-a": "ü" }, extensions: { n: 1 } }),
    ...Array.from({ length: 40 }, (_, n) => testMessage(`m${n}`, { data: new Uint8Array(n).fill(n) })),
  ];
  const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1);

  beforeAll(async () => {
    await data.create();
    const store = postgresStore({ pool, schema });
    await store.transaction((tx) => store.append(tx, "outbox", messages));
  });
  afterAll(data.drop);

  const parsers = new Map<number, (text: string) => unknown>([
    [17, () => "no bytes"],
    [20, BigInt],
    [25, (text) => ({ text })],
  ]);
  const getTypeParser = (oid: number, format: "text") => parsers.get(oid) ?? pg.types.getTypeParser(oid, format);
  it.each<[string, pg.PoolConfig]>([
    ["as they are", {}],
    ["in sessions that write bytes in the old form", { options: "-c bytea_output=escape" }],
    ["through a pool with parsers of its user's own", { types: { getTypeParser } as pg.CustomTypesConfig }],
  ])("gives back what was appended, %s", async (_, config) => {
    const own = new pg.Pool({ connectionString: url, max: 1, ...config });
    const box = postgresStore({ pool: own, schema }).box("outbox");
    const { rows, drawn } = await box.read(every);
    expect(rows.map(({ message }) => message).sort(byId)).toEqual([...messages].sort(byId));
    expect(rows.every(({ message }) => message.data.constructor === Uint8Array)).toBe(true);
    const cut = await box.read(every, { maxBytes: 30_000 });
    expect(cut.rows.length).toBeLessThan(rows.length);
    // The rows beyond the byte limit are reported, whatever the format of the bytes.
    const missing = rows.filter(({ position }) => !cut.rows.some((row) => row.position === position));
    expect(missing.filter(({ lane }) => !cut.more.has(lane))).toEqual([]);
    const late = await box.late(
      every.map(({ lane }) => ({ lane, after: 0, upTo: drawn, known: [] })),
      100,
    );
    expect(late.rows.map(({ message }) => message).sort(byId)).toEqual([...messages].sort(byId));
    expect(late.rows.every(({ ageMs, held, attempts }) => ageMs >= 0 && !held && attempts === 0)).toBe(true);
    await own.end();
  });

  it("refuses a pool that asks for binary results: what is no UTF-8 in them does not survive the driver", () => {
    const own = new pg.Pool({ connectionString: url, binary: true } as pg.PoolConfig);
    expect(() => postgresStore({ pool: own, schema })).toThrow("without its option 'binary'");
  });
});
