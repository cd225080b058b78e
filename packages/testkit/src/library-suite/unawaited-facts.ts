import type { ClientBase, PoolClient } from "pg";
import { createOutbox, type Store } from "postbox";
import { expect, onTestFinished } from "vitest";
import type { StoreFact } from "../store-suite/store-facts.js";
import type { StartedHandler } from "./handler-facts.js";
import type { LibrarySuiteOptions } from "./library-harness.js";
import { Placed } from "./placed.js";
import { RowCursor } from "./row-cursor.js";

/** Collects unhandled rejections. Otherwise the test runner would fail, and Node.js would exit. */
function unhandledRejections(): unknown[] {
  const others = process.listeners("unhandledRejection");
  const told: unknown[] = [];
  process.removeAllListeners("unhandledRejection");
  process.on("unhandledRejection", (reason) => told.push(reason));
  onTestFinished(() => {
    process.removeAllListeners("unhandledRejection");
    for (const other of others) process.on("unhandledRejection", other);
  });
  return told;
}

const notAwaited = { code: "not-awaited" };

/** A library that exposes the client of `pg`. */
type LibraryOnPg<Tx> = LibrarySuiteOptions<Tx> & Required<Pick<LibrarySuiteOptions<Tx>, "client">>;

/** A cursor with rows left. */
async function openCursorOn(client: ClientBase): Promise<RowCursor> {
  const cursor = new RowCursor("SELECT generate_series(1, 1000) AS n");
  client.query(cursor);
  await cursor.read;
  return cursor;
}

/** A function of `store.transaction` returns while a statement is running on its connection. */
export function unawaitedTransactionFacts<Tx>(fact: StoreFact<Tx>, { client }: LibraryOnPg<Tx>, schema: string): void {
  fact("a transaction with a running statement rolls back, except for a closing cursor", async ({ store, effects }) => {
    const rejections = unhandledRejections();
    const outbox = createOutbox(store, { source: "/shop" });
    const insert = (tx: Tx, order: string) => client(tx).query(`INSERT INTO ${schema}.effect VALUES ('${order}')`);
    const transactions = [
      store.transaction(async (tx) => void insert(tx, "forgotten")),
      store.transaction(async (tx) => {
        await insert(tx, "open");
        await openCursorOn(client(tx));
      }),
      store.transaction(async (tx) => {
        await insert(tx, "published");
        await openCursorOn(client(tx));
        outbox.in(tx).publish(Placed, { order: "published" });
      }),
      store.transaction(async (tx) => {
        await insert(tx, "closing");
        (await openCursorOn(client(tx))).close();
      }),
    ];
    const codes = await Promise.all(transactions.map((each) => each.catch(({ code }) => code)));
    expect(codes).toEqual([notAwaited.code, notAwaited.code, notAwaited.code, undefined]);
    expect(await effects()).toEqual(["closing"]);
    expect(rejections).toEqual([]);
  });
}

/** A handler returns while a statement is running on its connection. */
export function unawaitedFacts<Tx>(
  fact: StoreFact<Tx>,
  { run, client }: LibraryOnPg<Tx>,
  schema: string,
  start: (store: Store<Tx>, handle: (order: string, tx: Tx, attempt: number) => Promise<void> | void) => StartedHandler,
): void {
  const insert = (order: string) => `INSERT INTO ${schema}.effect VALUES ('${order}, later')`;

  const openCursor = (tx: Tx) => openCursorOn(client(tx));

  fact("that does not await statements fails, and its process and connection survive", async (harness) => {
    const rejections = unhandledRejections();
    const closed: string[] = [];
    const { publisher, log } = start(harness.store, (order, tx) => {
      (client(tx) as PoolClient).once("end", () => closed.push(order));
      const save = async () => {
        await run(tx, insert(order));
        await run(tx, insert(order));
      };
      if (order === "quiet") save();
      else client(tx).query(insert(order));
    });
    for (const order of ["quiet", "o1"]) await publisher.publish(Placed, { order });
    await log.until("delivery.parked", 2);
    for (const { error } of log.of("delivery.parked")) {
      expect(error).toMatchObject({ code: "attempts-spent", cause: notAwaited });
    }
    expect(await harness.effects()).toEqual([]);
    expect({ rejections, closed }).toEqual({ rejections: [], closed: [] });
  });

  fact("that leaves work behind which keeps sending statements does not commit", async (harness) => {
    const rejections = unhandledRejections();
    const { publisher, log } = start(harness.store, (order, tx, attempt) => {
      const leftBehind = async () => {
        for (;;) await run(tx, insert(order));
      };
      if (attempt === 1) leftBehind();
    });
    for (const order of ["quiet", "o1"]) await publisher.publish(Placed, { order });
    await log.until("delivery.handled", 2);
    for (const { error } of log.of("delivery.retried")) expect(error).toMatchObject(notAwaited);
    expect([...(await harness.effects())].sort()).toEqual(["o1", "quiet"]);
    expect(rejections).toEqual([]);
  });

  fact("that leaves a cursor open fails soon, and nothing waits behind it for ever", async (harness) => {
    const rejections = unhandledRejections();
    const outbox = createOutbox(harness.store, { source: "/shop" });
    const { publisher, log } = start(harness.store, async (order, tx, attempt) => {
      if (attempt > 1) return;
      await openCursor(tx);
      if (order === "quiet") client(tx).query(insert(order));
      if (order === "published") outbox.in(tx).publish(Placed, { order });
      if (order === "failing") throw new Error("no stock");
    });
    const orders = ["failing", "o1", "published", "quiet"];
    for (const order of orders) await publisher.publish(Placed, { order }, { id: order });
    await log.until("delivery.handled", 4);
    const errors = Object.fromEntries(log.of("delivery.retried").map(({ id, error }) => [id, error]));
    expect(errors).toMatchObject({
      failing: { message: expect.stringContaining("no stock") },
      o1: notAwaited,
      published: { code: "not-awaited", cause: notAwaited },
      quiet: notAwaited,
    });
    expect([...(await harness.effects())].sort()).toEqual(orders);
    expect(rejections).toEqual([]);
  });

  fact("that leaves a stream early commits, since its cursor closes by itself", async (harness) => {
    const { publisher, log } = start(harness.store, async (order, tx) => {
      const cursor = await openCursor(tx);
      if (order === "quiet") cursor.close();
      else setImmediate(() => cursor.close());
    });
    for (const order of ["quiet", "o1"]) await publisher.publish(Placed, { order });
    await log.until("delivery.handled", 2);
    expect(log.of("delivery.retried")).toEqual([]);
    expect([...(await harness.effects())].sort()).toEqual(["o1", "quiet"]);
  });
}
