// One of several processes on one file of SQLite: it places orders, and handles what any of them has placed. Arguments:
// the file, the name of the process, and for how many ms it places orders. Its parent counts in the file.
import Database from "libsql";
import { createOutbox, createRouter, defineEvent, inbox, outboxReceiver, transaction } from "postbox";
import { sqliteStore } from "postbox/sqlite";
import { z } from "zod";

const [file = "", name = "", ms = "0"] = process.argv.slice(2);
const Placed = defineEvent({
  type: "shop.v1.Placed",
  schema: z.object({ id: z.string(), customer: z.string(), number: z.number() }),
  key: ({ customer }) => customer,
});
const problems: string[] = [];
const telemetry = (event: { readonly name: string; readonly error?: Error }) => {
  if (event.error !== undefined) problems.push(`${event.name}: ${event.error.message}`);
};
const store = sqliteStore({ open: () => new Database(file) });
const outbox = createOutbox(store, { source: "/orders", telemetry });
const router = createRouter("billing", { telemetry })
  .use(transaction(store))
  .use(inbox(store))
  .on(Placed, async ({ id, customer, number }, { tx }) => {
    tx.prepare("INSERT INTO invoices (id, customer, number) VALUES (?, ?, ?)").run(id, customer, number);
  });

/** Places orders of its own customers in turn; every seventh transaction rolls back. */
async function placeOrders(until: number): Promise<void> {
  for (let number = 0; Date.now() < until; number++) {
    const customer = `${name}-${number % 5}`;
    const id = `${name}-${number}`;
    const fails = number % 7 === 6;
    const placed = store.transaction(async (tx) => {
      tx.prepare("INSERT INTO orders (id) VALUES (?)").run(id);
      await outbox.in(tx).publish(Placed, { id, customer, number });
      if (fails) throw new Error("the card was refused");
    });
    await placed.catch((error: Error) => fails || problems.push(`placing: ${error.message}`));
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
  }
}

await router.start(outboxReceiver(store, { pollIntervalMs: 20, leaseMs: 2_000, telemetry }));
await placeOrders(Date.now() + Number(ms));
process.once("message", async () => {
  await router.stop();
  store.close();
  process.disconnect();
});
process.send?.(problems);
