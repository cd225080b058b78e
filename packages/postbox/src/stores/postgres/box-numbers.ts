import { ConfigError } from "../../errors.js";
import { laneCount } from "../../internal/lane.js";
import type { Executor } from "../../store.js";
import { consumerOf } from "../box-names.js";
import { type BoxTables, boxTable, boxTables, outboxNumber, tablesOf } from "./names.js";
import type { StatementRunner } from "./run-statement.js";
import { type SchemaCheck, schemaError } from "./schema-check.js";

/** Finds the tables of a box and its number in them. */
export interface BoxFinder {
  /**
   * Creates the inbox of a consumer that has none yet. Pass `look` inside an open transaction: the pool may have no
   * other connection.
   */
  tables(box: string, look?: Executor): Promise<BoxTables>;
  /** Like `tables`, but never creates a box: a box that was never used does not exist. */
  existing(box: string, look?: Executor): Promise<BoxTables>;
  /** The names of all boxes. */
  names(look?: Executor): Promise<readonly string[]>;
}

export function boxFinder(schema: string, run: StatementRunner, checkSchema: SchemaCheck): BoxFinder {
  const found = new Map<string, BoxTables>();
  const boxes = boxTable(schema);

  async function numberOf(box: string, execute: Executor): Promise<number | undefined> {
    const { rows } = await execute(`SELECT number FROM ${boxes} WHERE name = $1::text`, [box]);
    return rows[0] === undefined ? undefined : Number(rows[0].number);
  }

  /**
   * If two sessions create the same box, the second waits, inserts nothing and finds what the first has committed. A
   * crash leaves the number with all of its lanes, or nothing.
   */
  async function made(box: string): Promise<number> {
    const known = await numberOf(box, run);
    if (known !== undefined) return known;
    await run(
      `WITH made AS (
         INSERT INTO ${boxes} (name) VALUES ($1::text) ON CONFLICT (name) DO NOTHING RETURNING number
       )
       INSERT INTO ${tablesOf(schema, box).lane} (box, lane)
       SELECT number, lane FROM made, generate_series(0, ${laneCount - 1}) AS lane`,
      [box],
    );
    return (await numberOf(box, run)) as number;
  }

  async function missing(box: string, execute: Executor): Promise<never> {
    const { rows } = await execute(`SELECT name FROM ${boxes} ORDER BY number LIMIT 10`, []);
    const others = rows.map(({ name }) => name).join(", ");
    throw new ConfigError(
      "option-invalid",
      `there is no box '${box}', since no such consumer has run; the boxes are ${others}`,
      { path: "box" },
    );
  }

  type Otherwise = (box: string, execute: Executor) => Promise<number>;
  async function look(box: string, execute: Executor, otherwise: Otherwise): Promise<BoxTables> {
    const known = found.get(box);
    if (known !== undefined) return known;
    try {
      // The number of the outbox is fixed.
      const isInbox = consumerOf(box) !== undefined;
      if (isInbox) await checkSchema(execute);
      const number = isInbox ? ((await numberOf(box, execute)) ?? (await otherwise(box, execute))) : outboxNumber;
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
      const { rows } = await execute(`SELECT name FROM ${boxes} ORDER BY number`, []);
      return rows.map(({ name }) => String(name));
    },
    tables: (box, execute = run) => look(box, execute, made),
    existing: (box, execute = run) => look(box, execute, missing),
  };
}
