import pg from "pg";
import { createOutbox, createRouter, inbox, transaction } from "postbox";
import { defineTransactions, postgresStore } from "postbox/postgres";
import { OrderPlaced, requireCredit, tell } from "./story.js";

/** A transaction library without a built-in adapter, such as your own. */
class UnitOfWork {
  constructor(private readonly client: pg.ClientBase) {}
  run(text: string, values: readonly unknown[] = []) {
    return this.client.query(text, [...values]);
  }
}

async function inUnitOfWork<R>(work: (unit: UnitOfWork) => Promise<R>, mode = ""): Promise<R> {
  const client = await pool.connect();
  try {
    await client.query(`BEGIN ${mode}`);
    const result = await work(new UnitOfWork(client));
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}

const pool = new pg.Pool({ connectionString: process.argv[2] });
const transactions = defineTransactions<UnitOfWork>({
  name: "units of work",
  rightCall: "pass the unit of `inUnitOfWork(async (unit) => …)`",
  look: (unit) => (unit instanceof UnitOfWork ? "perhaps" : { not: "it is no unit of work" }),
  async query(unit, text, params) {
    const { rows, rowCount } = await unit.run(text, params);
    return { rows, rowCount: rowCount ?? 0 };
  },
  begin: (work, { isolation }) => inUnitOfWork(work, isolation && `ISOLATION LEVEL ${isolation}`),
});
const store = postgresStore({ pool, transactions });
const outbox = createOutbox(store, { source: "/orders" });

const placeOrder = (id: string, total: number) =>
  inUnitOfWork(async (unit) => {
    await unit.run("INSERT INTO orders VALUES ($1, $2)", [id, total]);
    await outbox.in(unit).publish(OrderPlaced, { id, total });
    requireCredit(total);
  });

const billing = createRouter("billing")
  .use(transaction(store))
  .use(inbox(store))
  .on(OrderPlaced, async ({ id, total }, { tx }) => {
    await tx.run("INSERT INTO invoices VALUES ($1, $2)", [id, total]);
  });

await tell({ pool, store, placeOrder, billing });
await pool.end();
