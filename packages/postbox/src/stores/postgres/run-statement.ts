import { createHash } from "node:crypto";
import type { Pool, QueryConfig } from "pg";
import type { Executor } from "../../store.js";
import { pgTransactions } from "../../transactions/pg.js";
import { sqlState } from "../../transactions/sql-state.js";

/** An executor of the relay's statements. `often`: it comes again and again, and its plan does not depend on its parameters. */
export type StatementRunner = (...statement: [...Parameters<Executor>, often?: boolean]) => ReturnType<Executor>;

/**
 * Runs single statements on the pool, each in a transaction of its own at READ COMMITTED: there a statement that meets a
 * concurrent change waits and looks again, while the stricter levels give up with a serialization failure, and
 * SERIALIZABLE would also make the user's transactions fail over what a relay reads.
 *
 * That level is the server's default, so the pool is asked once; only where it has another one is each statement put
 * between BEGIN and COMMIT, at the price of two more round trips. Setting the level on the session instead would not
 * survive a transaction pooler. Should the default change later, statements fail, but none goes wrong: a settle or a
 * take-over that met a concurrent one is rolled back.
 */
export function statementRunner(pool: Pool): StatementRunner {
  let needsTransaction: boolean | undefined;
  const inTransaction = pgTransactions(pool);
  const prepared = preparedStatements(pool);

  return async (text, params, often = false) => {
    if (needsTransaction === undefined) {
      const { rows } = await pool.query("SELECT current_setting('default_transaction_isolation') AS level");
      needsTransaction = rows[0].level !== "read committed";
    }
    const { rows, rowCount } = needsTransaction
      ? await inTransaction.begin((client) => client.query(text, params as unknown[]), { isolation: "read committed" })
      : often
        ? await prepared(text, params as unknown[])
        : await pool.query(text, params as unknown[]);
    return { rows, rowCount: rowCount ?? 0 };
  };
}

/** The session has no such statement, or has it from another client. */
const notKept: ReadonlySet<string | undefined> = new Set(["26000", "42P05"]);
/** The tables have changed since it was prepared. */
const outdated = "0A000";

/**
 * Prepares statements, which halves the time of a short one. A pooler that lends sessions for one transaction loses them, or
 * finds them there: then the statement has not run, is run without a name, and so are all later ones. After a migration they
 * are prepared anew. Names are made of the texts, so that nobody's can be another statement.
 */
function preparedStatements(pool: Pool) {
  const names = new Map<string, string>();
  let works = true;
  let generation = 0;
  const nameOf = (text: string): string => {
    const hash = () => createHash("sha256").update(`${generation} ${text}`).digest("hex").slice(0, 24);
    const name = names.get(text) ?? `postbox_${hash()}`;
    names.set(text, name);
    return name;
  };
  return async (text: string, values: unknown[]) => {
    if (!works) return pool.query(text, values);
    try {
      return await pool.query({ name: nameOf(text), text, values } satisfies QueryConfig);
    } catch (error) {
      const state = sqlState(error);
      if (notKept.has(state)) works = false;
      else if (state === outdated) {
        generation++;
        names.clear();
      } else throw error;
      return pool.query(text, values);
    }
  };
}
