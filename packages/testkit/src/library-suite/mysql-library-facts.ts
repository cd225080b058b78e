import {
  constant,
  createOutbox,
  createPublisher,
  createRouter,
  durableInbox,
  inbox,
  inboxOf,
  outboxOutputs,
  type Publisher,
  type Store,
  timeout,
  transaction,
} from "postbox";
import { memoryBroker } from "postbox/memory";
import { describe, expect, it, onTestFinished } from "vitest";
import { gate } from "../gate.js";
import type { MysqlTestDataOptions } from "../mysql-store-harness.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import type { StoreHarness } from "../store-suite/store-harness.js";
import { telemetryLog } from "../telemetry-log.js";
import { Invoiced, Placed } from "./placed.js";

/** A library on MySQL, as its users use it. */
export interface MysqlLibrarySuiteOptions<Tx> extends Omit<MysqlTestDataOptions<Tx>, "impostors"> {
  readonly name: string;
  /** Part of the advice in the error for a wrong handle: the call that returns a right one. */
  readonly rightCall: string;
  /** What a user of this library may pass instead of a transaction. */
  impostors(): readonly unknown[];
  /** Opens a transaction as the library's documentation shows it, without the store. */
  begin<R>(work: (tx: Tx) => Promise<R>): Promise<R>;
  /** Opens a nested transaction, behind a savepoint. Absent if the library has none. */
  nested?<R>(tx: Tx, work: (inner: Tx) => Promise<R>): Promise<R>;
  /** Runs a statement without parameters as the library's documentation shows it. */
  run(tx: Tx, text: string): Promise<unknown>;
}

const consumer = "billing";
const refused = { code: "not-a-transaction" };

export function mysqlLibraryFacts<Tx>(
  fact: StoreFact<Tx>,
  library: MysqlLibrarySuiteOptions<Tx>,
  database: string,
): void {
  ownTransactionFacts(fact, library, database);
  describe.each(["inbox", "durableInbox"] as const)("a handler behind %s", (mode) =>
    handlerFacts(fact, library, database, mode),
  );
}

/** Publishing in a transaction that the user has opened with the library. */
function ownTransactionFacts<Tx>(
  fact: StoreFact<Tx>,
  { begin, nested, run, ...library }: MysqlLibrarySuiteOptions<Tx>,
  database: string,
): void {
  const order = (tx: Tx, id: string) => run(tx, `INSERT INTO ${database}.effect (name) VALUES ('${id}')`);
  const outboxOf = (store: Store<Tx>) => createOutbox(store, { source: "/shop" });
  const committed = async ({ contents, effects }: StoreHarness<Tx>) => ({
    orders: [...(await effects())].sort(),
    messages: (await contents("outbox")).pending,
  });

  describe("in the user's own transaction", () => {
    fact("a message commits with the user's writes, and rolls back with them", async (harness) => {
      const outbox = outboxOf(harness.store);
      await begin(async (tx) => {
        await order(tx, "o1");
        await outbox.in(tx).publish(Placed, { order: "o1" }, { id: "m1" });
        await order(tx, "o2");
      });
      const failing = begin(async (tx) => {
        await order(tx, "o3");
        await outbox.in(tx).publish(Placed, { order: "o3" }, { id: "m3" });
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect(await committed(harness)).toEqual({ orders: ["o1", "o2"], messages: ["m1"] });
    });

    fact("a failed statement leaves it usable", async (harness) => {
      await begin(async (tx) => {
        await run(tx, "SELECT none FROM nowhere.at_all").catch(() => {});
        await outboxOf(harness.store).in(tx).publish(Placed, { order: "o1" }, { id: "m1" });
      });
      expect((await committed(harness)).messages).toEqual(["m1"]);
    });

    fact("a publish after a statement of the schema, which commits, is refused", async (harness) => {
      const failing = begin(async (tx) => {
        await order(tx, "o1");
        await run(tx, `CREATE TABLE IF NOT EXISTS ${database}.made (id INT)`);
        await outboxOf(harness.store).in(tx).publish(Placed, { order: "o1" }, { id: "ghost" });
      });
      await expect(failing).rejects.toMatchObject(refused);
      expect((await committed(harness)).messages).toEqual([]);
    });

    if (nested === undefined) it.skip("savepoints (the library has none)");
    else {
      fact("a rolled back savepoint removes its messages, and no others", async (harness) => {
        const outbox = outboxOf(harness.store);
        const publish = (tx: Tx, id: string) => outbox.in(tx).publish(Placed, { order: id }, { id });
        await begin(async (tx) => {
          await publish(tx, "m1");
          const inner = nested(tx, async (own) => {
            await publish(own, "m2");
            throw new Error("no stock");
          });
          await expect(inner).rejects.toThrow("no stock");
          await nested(tx, async (own) => void (await publish(own, "m3")));
          await publish(tx, "m4");
        });
        expect((await committed(harness)).messages).toEqual(["m1", "m3", "m4"]);
      });
    }
  });

  describe("a handle is rejected, with the right call,", () => {
    fact("when it is not a transaction", async (harness) => {
      const impostors = library.impostors();
      expect(impostors.length).toBeGreaterThan(0);
      for (const impostor of impostors) {
        const wrong = outboxOf(harness.store)
          .in(impostor as Tx)
          .publish(Placed, { order: "o1" });
        await expect(wrong).rejects.toMatchObject({ ...refused, message: expect.stringContaining(library.rightCall) });
      }
      expect((await committed(harness)).messages).toEqual([]);
    });

    fact("once its transaction has ended", async (harness) => {
      const ended: Tx[] = [];
      await begin(async (tx) => void ended.push(tx));
      await begin((tx) => Promise.reject(new Error(String(ended.push(tx))))).catch(() => {});
      await harness.store.transaction(async (tx) => void ended.push(tx));
      expect(ended).toHaveLength(3);
      for (const tx of ended) {
        await expect(
          outboxOf(harness.store).in(tx).publish(Placed, { order: "o1" }, { id: "ghost" }),
        ).rejects.toMatchObject(refused);
      }
      expect((await committed(harness)).messages).toEqual([]);
    });
  });

  // The user forgets to await a publish. A statement behind the library's ROLLBACK would commit on its own.
  fact("a publish that is not awaited writes nothing behind a ROLLBACK", async (harness) => {
    const outbox = outboxOf(harness.store);
    for (let step = -40; step <= 40; step += 2) {
      let publishing: Promise<unknown> = Promise.resolve();
      const failing = begin(async (tx) => {
        publishing = turns(step).then(() => outbox.in(tx).publish(Placed, { order: "o1" }, { id: `ghost ${step}` }));
        publishing.catch(() => {});
        await turns(-step);
        throw new Error("no stock");
      });
      await Promise.allSettled([failing, publishing]);
    }
    expect((await committed(harness)).messages).toEqual([]);
  });

  fact("a lost connection is classified as unavailable, and replaced", async (harness) => {
    const { store } = harness;
    const killed = store.transaction(async (tx) => {
      await order(tx, "o1");
      // MySQL answers with an error, and then ends the session.
      await run(tx, "KILL CONNECTION_ID()").catch(() => {});
      await run(tx, "SELECT 1");
    });
    await expect(killed).rejects.toSatisfy((error) => store.isUnavailable(error));
    await store.transaction((tx) => outboxOf(store).in(tx).publish(Placed, { order: "o1" }, { id: "m1" }));
    expect(await committed(harness)).toEqual({ orders: [], messages: ["m1"] });
  });

  fact("of two transactions that deadlock, one is a conflict, and is rolled back", async (harness) => {
    const { store } = harness;
    const both = [gate(), gate()];
    const lock = (own: number, numbers: readonly number[]) =>
      store.transaction(async (tx) => {
        await outboxOf(store)
          .in(tx)
          .publish(Placed, { order: "o1" }, { id: `m${own}` });
        for (const [index, number] of numbers.entries()) {
          await run(tx, `SELECT number FROM ${database}.postbox_lock WHERE number = ${number} FOR UPDATE`);
          if (index === 0) both[own]?.open();
          await both[1 - own]?.opened;
        }
      });
    const outcomes = await Promise.allSettled([lock(0, [1, 2]), lock(1, [2, 1])]);
    const failed = outcomes.filter((outcome) => outcome.status === "rejected");
    expect(failed).toHaveLength(1);
    expect(store.isConflict(failed[0]?.reason)).toBe(true);
    expect((await committed(harness)).messages).toHaveLength(1);
  });
}

/** In a handler, the inbox, the user's writes and the handler's outputs share the library's own transaction. */
function handlerFacts<Tx>(
  fact: StoreFact<Tx>,
  { run }: MysqlLibrarySuiteOptions<Tx>,
  database: string,
  mode: "inbox" | "durableInbox",
): void {
  type Handle = (order: string, tx: Tx, attempt: number) => Promise<void> | void;
  function start(store: Store<Tx>, handle: Handle, limitMs = 60_000) {
    // The compiler cannot compare handles of unknown types.
    const untyped = store as Store<unknown>;
    const broker = memoryBroker();
    broker.bind(consumer, [Placed]);
    const log = telemetryLog();
    const router = createRouter(consumer, { backoff: constant(1), maxAttempts: 3, telemetry: log.telemetry })
      .use(timeout(limitMs))
      .use(transaction(untyped))
      .use(mode === "inbox" ? inbox(untyped) : durableInbox(untyped, { pollIntervalMs: 20 }))
      .use(outboxOutputs(createOutbox(untyped, { source: "/billing" })))
      .on(Placed, async ({ order }, { tx, attempt }) => {
        await run(tx as Tx, `INSERT INTO ${database}.effect (name) VALUES ('${order}')`);
        await handle(order, tx as Tx, attempt);
        return [Invoiced.message({ order }, { id: `invoice of ${order}` })];
      });
    router.start(broker.receiver());
    onTestFinished(() => router.stop());
    const publisher: Publisher = createPublisher(broker.sender(), { source: "/shop" });
    return { log, publisher };
  }

  fact("works in the library's transaction, with everything that belongs to it", async (harness) => {
    const { store } = harness;
    const { publisher, log } = start(store, (order, tx, attempt) => {
      expect(store.current()).toBe(tx);
      if (order === "o2" && attempt === 1) throw new Error("no stock");
    });
    for (const order of ["o1", "o1", "o2"]) await publisher.publish(Placed, { order }, { id: order });
    await log.until("delivery.handled", 2);
    await log.until("delivery.skipped");
    expect([...(await harness.effects())].sort()).toEqual(["o1", "o2"]);
    expect([...(await harness.contents("outbox")).pending].sort()).toEqual(["invoice of o1", "invoice of o2"]);
  });

  // The handler hangs in its statement, in the database; or after it, on this side.
  for (const [where, statement] of [
    ["in a statement", "SELECT SLEEP(60)"],
    ["between two statements", "SELECT 1"],
  ] as const) {
    fact(`that hangs ${where} loses its transaction, and is retried`, async (harness) => {
      const wakes = gate();
      const handle: Handle = async (_, tx, attempt) => {
        if (attempt > 1) return;
        await run(tx, statement);
        await wakes.opened;
      };
      const { publisher, log } = start(harness.store, handle, 300);
      await publisher.publish(Placed, { order: "o1" }, { id: "m1" });
      const { error } = await log.until("delivery.retried");
      expect(error).toMatchObject({ code: "handler-timeout" });
      await log.until("delivery.handled");
      wakes.open();
      expect(await harness.effects()).toEqual(["o1"]);
      expect((await harness.contents("outbox")).pending).toEqual(["invoice of o1"]);
    });
  }

  for (const ending of ["ROLLBACK", "COMMIT"]) {
    fact(`that ends its own transaction with ${ending} is parked`, async (harness) => {
      const { publisher, log } = start(harness.store, async (_, tx) => void (await run(tx, ending)));
      await publisher.publish(Placed, { order: "o1" }, { id: "m1" });
      const { error } = await log.until("delivery.parked");
      expect(error).toMatchObject({ code: "transaction-ended" });
      expect((await harness.contents(inboxOf(consumer))).parked).toMatchObject([{ id: "m1" }]);
      expect((await harness.contents("outbox")).pending).toEqual([]);
      // What the handler has committed itself stays committed.
      expect(await harness.effects()).toEqual(ending === "COMMIT" ? ["o1"] : []);
    });
  }

  fact("that rolls back to a savepoint continues", async (harness) => {
    const { publisher, log } = start(harness.store, async (_, tx) => {
      for (const statement of ["SAVEPOINT s", "SELECT 1", "ROLLBACK TO SAVEPOINT s", "RELEASE SAVEPOINT s"]) {
        await run(tx, statement);
      }
    });
    await publisher.publish(Placed, { order: "o1" }, { id: "m1" });
    await log.until("delivery.handled");
    expect(log.of("delivery.retried")).toEqual([]);
    expect(await harness.effects()).toEqual(["o1"]);
  });
}

/** Waits for this many turns of the microtask queue; none if below one. */
async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await Promise.resolve();
}
