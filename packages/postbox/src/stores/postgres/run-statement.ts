import type { Pool } from "pg";
import type { Executor } from "../../store.js";
import { pgTransactions } from "../../transactions/pg.js";

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
export function statementRunner(pool: Pool): Executor {
  let needsTransaction: boolean | undefined;
  const inTransaction = pgTransactions(pool);

  return async (text, params) => {
    if (needsTransaction === undefined) {
      const { rows } = await pool.query("SELECT current_setting('default_transaction_isolation') AS level");
      needsTransaction = rows[0].level !== "read committed";
    }
    const { rows, rowCount } = needsTransaction
      ? await inTransaction.begin((client) => client.query(text, params as unknown[]), { isolation: "read committed" })
      : await pool.query(text, params as unknown[]);
    return { rows, rowCount: rowCount ?? 0 };
  };
}
