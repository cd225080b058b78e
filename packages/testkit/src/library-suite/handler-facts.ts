import {
  constant,
  createOutbox,
  createPublisher,
  createRouter,
  durableInbox,
  inbox,
  outboxOutputs,
  type Store,
  transaction,
} from "postbox";
import { memoryBroker } from "postbox/memory";
import { describe, expect, onTestFinished } from "vitest";
import type { StoreFact } from "../store-suite/store-facts.js";
import { telemetryLog } from "../telemetry-log.js";
import type { LibrarySuiteOptions } from "./library-harness.js";
import { Invoiced, Placed } from "./placed.js";

const consumer = "billing";

/** Handling: the inbox, the user's writes and what the handler returns share the library's own transaction. */
export function handlerFacts<Tx>(fact: StoreFact<Tx>, { run }: LibrarySuiteOptions<Tx>, schema: string): void {
  type Handle = (order: string, tx: Tx, attempt: number) => Promise<void> | void;

  function start(mode: "inbox" | "durableInbox", store: Store<Tx>, handle: Handle) {
    // The compiler cannot compare handles whose type it does not know yet.
    const untyped = store as Store<unknown>;
    const broker = memoryBroker();
    broker.bind(consumer, [Placed]);
    const log = telemetryLog();
    const router = createRouter(consumer, { backoff: constant(1), telemetry: log.telemetry })
      .use(transaction(untyped))
      .use(mode === "inbox" ? inbox(untyped) : durableInbox(untyped, { pollIntervalMs: 20 }))
      .use(outboxOutputs(createOutbox(untyped, { source: "/billing" })))
      .on(Placed, async ({ order }, { tx, attempt }) => {
        await run(tx as Tx, `INSERT INTO ${schema}.effect VALUES ('${order}')`);
        await handle(order, tx as Tx, attempt);
        if (order === "quiet") return [];
        return [Invoiced.message({ order }, { id: `invoice of ${order}` })];
      });
    router.start(broker.receiver());
    onTestFinished(() => router.stop());
    return { log, publisher: createPublisher(broker.sender(), { source: "/shop" }) };
  }

  describe.each(["inbox", "durableInbox"] as const)("a handler behind %s", (mode) => {
    fact("works in the library's transaction, with everything that belongs to it", async (harness) => {
      const { store } = harness;
      const { publisher, log } = start(mode, store, (order, tx, attempt) => {
        expect(store.current()).toBe(tx);
        if (order === "o2" && attempt === 1) throw new Error("no stock");
      });
      for (const order of ["o1", "o1", "o2"]) await publisher.publish(Placed, { order }, { id: order });
      await log.until("delivery.handled", 2);
      await log.until("delivery.skipped");
      expect([...(await harness.effects())].sort()).toEqual(["o1", "o2"]);
      expect([...(await harness.contents("outbox")).pending].sort()).toEqual(["invoice of o1", "invoice of o2"]);
    });

    fact("that swallows an error of the database does not commit", async (harness) => {
      const { publisher, log } = start(mode, harness.store, async (_, tx, attempt) => {
        if (attempt === 1) await run(tx, "SELECT 1 / 0").catch(() => {});
      });
      await publisher.publish(Placed, { order: "o1" }, { id: "m1" });
      await publisher.publish(Placed, { order: "quiet" }, { id: "m2" });
      await log.until("delivery.retried", 2);
      await log.until("delivery.handled", 2);
      expect([...(await harness.effects())].sort()).toEqual(["o1", "quiet"]);
      expect((await harness.contents("outbox")).pending).toEqual(["invoice of o1"]);
    });
  });
}
