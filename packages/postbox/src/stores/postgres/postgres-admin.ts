import type { ClientBase } from "pg";
import type { Admin } from "../../admin.js";
import { runtimeWith } from "../../internal/runtime.js";
import type { TransactionLibrary } from "../../store.js";
import type { CheckedSelection } from "../admin-options.js";
import { createAdmin, type Reach } from "../create-admin.js";
import { adminConnection } from "./admin-connection.js";
import { auditFrom, detailsFrom, statsFrom, storedFrom } from "./admin-records.js";
import { auditSql, details, pauseSql, Statement, selectSql, statsSql, summary } from "./admin-sql.js";
import type { BoxFinder } from "./box-numbers.js";
import { changeStep, releaseKey, replayStep } from "./change-rows.js";
import type { BoxTables } from "./names.js";
import type { StatementRunner } from "./run-statement.js";
import type { SchemaCheck } from "./schema-check.js";

/** `Store.admin` in PostgreSQL. Each read is one statement; each step of a change is one transaction. */
export function postgresAdmin(
  schema: string,
  boxes: BoxFinder,
  run: StatementRunner,
  onPool: TransactionLibrary<ClientBase>,
  checkSchema: SchemaCheck,
): Admin {
  const { guarded, inTransaction, looking, look } = adminConnection(schema, run, onPool, checkSchema);
  const tablesOf = (box: string): Promise<BoxTables> => guarded("find the box", () => boxes.existing(box));

  async function reach({ action, box, status, filter }: CheckedSelection, limit: number): Promise<Reach> {
    const statement = new Statement();
    const once = action === "replay";
    // One more row shows whether there are more.
    const first = { limit: limit + 1 };
    const picked = selectSql(statement, await tablesOf(box), {
      status,
      filter,
      reach: first,
      list: "m.position",
      once,
    });
    const until = "(extract(epoch FROM statement_timestamp()) * 1000000::numeric)::bigint AS until";
    const [row] = await look(
      "count messages",
      `SELECT count(*) AS count, max(position) FILTER (WHERE place <= ${statement.add(limit, "bigint")}) AS last, ${until}
       FROM (SELECT position, row_number() OVER (ORDER BY position) AS place FROM (${picked}) AS picked) AS picked`,
      statement.params,
    );
    return { count: Number(row?.count), upTo: Number(row?.last ?? 0), until: Number(row?.until) };
  }

  return createAdmin({
    runtime: runtimeWith(undefined),
    boxes: () => boxes.names(),
    reach,

    async stats(box, withDone) {
      const t = await tablesOf(box);
      // It counts every row, so the planner may choose how.
      const { rows } = await guarded("count messages", () => run(statsSql(t), [withDone]));
      const [row] = rows;
      return statsFrom(JSON.parse(String(row?.stats)), withDone);
    },

    async look(box, work) {
      const t = await tablesOf(box);
      return looking("read messages", (query) =>
        work({
          async page({ status, filter, before, limit }) {
            const statement = new Statement();
            const reach = before === undefined ? { limit } : { before, limit };
            const text = selectSql(statement, t, { status, filter, reach, list: summary, newest: true });
            return (await query(text, statement.params)).map((row) => storedFrom(status, row));
          },
          async details(status, id) {
            const statement = new Statement();
            const asked = { status, filter: { ids: [id] }, reach: { limit: 1000 }, list: details, newest: true };
            return (await query(selectSql(statement, t, asked), statement.params)).map((row) =>
              detailsFrom(status, row),
            );
          },
        }),
      );
    },

    async audit({ box, limit, before }) {
      const params = [limit, String(before ?? "9223372036854775807")];
      const text = auditSql(await tablesOf(box ?? "outbox"), box === undefined ? "all" : "this");
      return (await look("read the audit", text, params)).map(auditFrom);
    },

    async change(change, step) {
      const t = await tablesOf(change.box);
      const inStep = change.action === "replay" ? replayStep : changeStep;
      return guarded(`${change.action} messages`, () => inStep(inTransaction, t, change, step));
    },

    async setPaused(paused, { box, by, reason }) {
      const verb = paused ? "pause" : "resume";
      await look(`${verb} the box`, pauseSql(await tablesOf(box), verb), [by, reason ?? null]);
    },

    async release(key, { box, by, reason }) {
      const t = await tablesOf(box);
      return guarded("release a key", () => releaseKey(inTransaction, t, key, { by, reason }));
    },
  });
}
