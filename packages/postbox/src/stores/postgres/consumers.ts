import { ConfigError } from "../../errors.js";
import { laneCount } from "../../internal/lane.js";
import { type Executor, inboxOf } from "../../store.js";
import { consumerOf } from "../box-names.js";
import { type BoxTables, boxTables, consumerTable, tablesNamed } from "./names.js";
import type { StatementRunner } from "./run-statement.js";
import { type SchemaCheck, schemaError } from "./schema-check.js";

/** Finds the tables of a box: of a consumer's inbox, which lanes are its own. */
export interface BoxFinder {
  /** Makes the inbox of a consumer that has none yet. Looks with `look`, where a transaction is open: the pool may have no other. */
  tables(box: string, look?: Executor): Promise<BoxTables>;
  /** The same, but what nobody has used does not exist: looking must not make it. */
  existing(box: string, look?: Executor): Promise<BoxTables>;
  /** Of all boxes there are. */
  names(look?: Executor): Promise<readonly string[]>;
}

/** A lane is an `integer`: more consumers than a database will ever see. */
const mostConsumers = Math.floor(0x7fffffff / laneCount) - 1;

export function boxFinder(schema: string, run: StatementRunner, checkSchema: SchemaCheck): BoxFinder {
  const found = new Map<string, BoxTables>();
  const names = consumerTable(schema);
  const { lane } = tablesNamed(schema, "inbox");

  async function numberOf(consumer: string, execute: Executor = run): Promise<number | undefined> {
    const { rows } = await execute(`SELECT number FROM ${names} WHERE name = $1::text`, [consumer]);
    return rows[0] === undefined ? undefined : Number(rows[0].number);
  }

  /** Of two that come at once one inserts nothing, and finds the other's, or the next number. */
  async function register(consumer: string): Promise<number> {
    for (let tries = 0; tries < 100; tries++) {
      const known = await numberOf(consumer);
      if (known !== undefined) return known;
      await run(
        `WITH made AS (
           INSERT INTO ${names} (name, number) SELECT $1::text, coalesce(max(number), 0) + 1 FROM ${names}
           HAVING coalesce(max(number), 0) < ${mostConsumers}
           ON CONFLICT DO NOTHING RETURNING number
         ), lanes AS (
           INSERT INTO ${lane} (lane) SELECT number * ${laneCount} + n FROM made, generate_series(0, ${laneCount - 1}) AS n
         )
         SELECT FROM made`,
        [consumer],
      );
    }
    throw new ConfigError(
      "option-invalid",
      `"${schema}" has room for ${mostConsumers} consumers, and none for one more`,
    );
  }

  async function look(
    box: string,
    execute: Executor,
    missing: (consumer: string) => Promise<number>,
  ): Promise<BoxTables> {
    const consumer = consumerOf(box);
    const known = found.get(box);
    if (known !== undefined) return known;
    try {
      if (consumer !== undefined) await checkSchema(execute);
      const number = consumer === undefined ? 0 : ((await numberOf(consumer, execute)) ?? (await missing(consumer)));
      const tables = boxTables(schema, box, number);
      found.set(box, tables);
      return tables;
    } catch (error) {
      throw schemaError(error, schema);
    }
  }

  return {
    async names(execute = run) {
      await checkSchema(execute);
      const { rows } = await execute(`SELECT name FROM ${names} ORDER BY number`, []);
      return ["outbox", ...rows.map(({ name }) => inboxOf(String(name)))];
    },
    tables: (box, execute = run) => look(box, execute, register),
    existing: (box, execute = run) =>
      look(box, execute, async (consumer) => {
        const { rows } = await execute(`SELECT name FROM ${names} ORDER BY name LIMIT 10`, []);
        const others = ["outbox", ...rows.map(({ name }) => `inbox/${name}`)].join(", ");
        throw new ConfigError(
          "option-invalid",
          `there is no box 'inbox/${consumer}', since no such consumer has run; there are ${others}`,
          { path: "box" },
        );
      }),
  };
}
