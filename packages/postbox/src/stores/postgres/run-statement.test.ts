import type { Pool, QueryConfig } from "pg";
import { expect, it } from "vitest";
import { statementRunner } from "./run-statement.js";

type Statement = Pick<QueryConfig, "name"> & { readonly text: string };

/** A pool that remembers what it was asked, and lets `fail` decide what goes wrong. */
function poolThat(fail: (statement: Statement) => string | undefined = () => undefined) {
  const asked: Statement[] = [];
  const pool = {
    async query(statement: string | QueryConfig) {
      const { name, text } = typeof statement === "string" ? { name: undefined, text: statement } : statement;
      if (text.includes("default_transaction_isolation")) return { rows: [{ level: "read committed" }], rowCount: 1 };
      asked.push(name === undefined ? { text } : { name, text });
      const code = fail({ text, ...(name === undefined ? {} : { name }) });
      if (code !== undefined) throw Object.assign(new Error("no"), { code });
      return { rows: [{ text }], rowCount: 1 };
    },
    on() {},
    listenerCount: () => 1,
  };
  return { run: statementRunner(pool as unknown as Pool), asked };
}

it("prepares what comes often, under a name that no other text has, and nothing else", async () => {
  const { run, asked } = poolThat();
  await run("SELECT 1", [], true);
  await run("SELECT 1", [], true);
  await run("SELECT 2", [], true);
  await run("SELECT 3", []);
  const [one, again, two, once] = asked;
  expect(one?.name).toMatch(/^postbox_[0-9a-f]{24}$/);
  expect(again?.name).toBe(one?.name);
  expect(two?.name).not.toBe(one?.name);
  expect(once).toEqual({ text: "SELECT 3" });
});

it.each(["26000", "42P05"])("does without names where a session does not keep them (%s)", async (code) => {
  const { run, asked } = poolThat(({ name }) => (name === undefined ? undefined : code));
  expect((await run("SELECT 1", [], true)).rows).toEqual([{ text: "SELECT 1" }]);
  await run("SELECT 1", [], true);
  expect(asked.map(({ name }) => name !== undefined)).toEqual([true, false, false]);
});

it("prepares anew under another name when the tables have changed", async () => {
  let prepared = 0;
  const { run, asked } = poolThat(({ name }) => (name !== undefined && ++prepared === 1 ? "0A000" : undefined));
  expect((await run("SELECT 1", [], true)).rows).toEqual([{ text: "SELECT 1" }]);
  await run("SELECT 1", [], true);
  expect(asked.map(({ name }) => name === undefined)).toEqual([false, true, false]);
  expect(asked[2]?.name).not.toBe(asked[0]?.name);
});

it("leaves every other failure to the one who asked", async () => {
  const { run, asked } = poolThat(() => "40001");
  await expect(run("SELECT 1", [], true)).rejects.toMatchObject({ code: "40001" });
  expect(asked).toHaveLength(1);
});
