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
import { describe, expect, onTestFinished } from "vitest";
import { gate } from "../gate.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { type TelemetryLog, telemetryLog } from "../telemetry-log.js";
import type { LibrarySuiteOptions } from "./library-harness.js";
import { Invoiced, Placed } from "./placed.js";
import { unawaitedFacts, unawaitedTransactionFacts } from "./unawaited-facts.js";

const consumer = "billing";

/** A running consumer, and how to publish to it. */
export interface StartedHandler {
  readonly publisher: Publisher;
  readonly log: TelemetryLog;
}

/** In a handler, the inbox, the user's writes and the handler's outputs share the library's own transaction. */
export function handlerFacts<Tx>(fact: StoreFact<Tx>, library: LibrarySuiteOptions<Tx>, schema: string): void {
  const { run, client } = library;
  type Handle = (order: string, tx: Tx, attempt: number) => Promise<void> | void;

  function start(mode: "inbox" | "durableInbox", store: Store<Tx>, handle: Handle, limitMs = 60_000): StartedHandler {
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
        await run(tx as Tx, `INSERT INTO ${schema}.effect VALUES ('${order}')`);
        await handle(order, tx as Tx, attempt);
        if (order === "quiet") return [];
        return [Invoiced.message({ order }, { id: `invoice of ${order}` })];
      });
    router.start(broker.receiver());
    onTestFinished(() => router.stop());
    return { log, publisher: createPublisher(broker.sender(), { source: "/shop" }) };
  }

  if (client !== undefined) unawaitedTransactionFacts(fact, { ...library, client }, schema);

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

    // The handler hangs in its statement, in the database; or after it, on this side.
    for (const [where, statement] of [
      ["in a statement", "SELECT pg_sleep(60)"],
      ["between two statements", "SELECT 1"],
    ] as const) {
      fact(`that hangs ${where} loses its transaction, and is retried`, async (harness) => {
        const wakes = gate();
        const late: Promise<unknown>[] = [];
        const { publisher, log } = start(
          mode,
          harness.store,
          async (_, tx, attempt) => {
            if (attempt > 1) return;
            const hanging = run(tx, statement);
            late.push(Promise.resolve(hanging).catch(() => "refused"));
            await hanging;
            await wakes.opened;
            late.push((async () => run(tx, `INSERT INTO ${schema}.effect VALUES ('late')`))().catch(() => "refused"));
          },
          300,
        );
        await publisher.publish(Placed, { order: "o1" }, { id: "m1" });
        const { error } = await log.until("delivery.retried");
        expect(error).toMatchObject({ code: "handler-timeout" });
        await log.until("delivery.handled");
        if (where === "between two statements") {
          await log.until("delivery.abandoned");
          wakes.open();
          await expect.poll(() => late.length).toBe(2);
        }
        // Some libraries never answer.
        const others = harness.store.transaction((tx) => run(tx, "SELECT 1")).then(() => "unanswered");
        expect(["refused", "unanswered"]).toContain(await Promise.race([late.at(-1), others]));
        await others;
        expect(await harness.effects()).toEqual(["o1"]);
        expect((await harness.contents("outbox")).pending).toEqual(["invoice of o1"]);
      });
    }

    // Another database is unreachable, full, or read-only; as its driver reports it, and wrapped in an error of the
    // caller.
    for (const code of ["57P01", "08006", "53300", "25006"]) {
      fact(`that fails because another database answers ${code} spends its attempts`, async (harness) => {
        const attempts: number[] = [];
        const { publisher, log } = start(mode, harness.store, (_, __, attempt) => {
          attempts.push(attempt);
          const cause = Object.assign(new Error("the other database is away"), { code });
          throw attempt === 1 ? cause : new Error("no rates", { cause });
        });
        await publisher.publish(Placed, { order: "o1" }, { id: "m1" });
        const { error } = await log.until("delivery.parked");
        expect(error).toMatchObject({ code: "attempts-spent" });
        expect(attempts).toEqual([1, 2, 3]);
        expect(await harness.effects()).toEqual([]);
      });
    }

    for (const ending of ["ROLLBACK; BEGIN", "ROLLBACK AND CHAIN", "COMMIT; BEGIN", "COMMIT AND CHAIN"]) {
      fact(
        `that ends its own transaction with ${ending} is parked, with what it has not committed rolled back`,
        async (harness) => {
          const { publisher, log } = start(mode, harness.store, async (_, tx) => {
            for (const statement of ending.split("; ")) await run(tx, statement);
            await run(tx, `INSERT INTO ${schema}.effect VALUES ('second half')`);
          });
          await publisher.publish(Placed, { order: "o1" }, { id: "m1" });
          const { error } = await log.until("delivery.parked");
          expect(error).toMatchObject({ code: "transaction-ended" });
          expect((await harness.contents(inboxOf(consumer))).parked).toMatchObject([{ id: "m1" }]);
          expect((await harness.contents("outbox")).pending).toEqual([]);
          // What the handler has committed itself stays committed.
          expect(await harness.effects()).toEqual(ending.startsWith("COMMIT") ? ["o1"] : []);
        },
      );
    }

    fact("that fails after a COMMIT of its own is parked, not marked as handled", async (harness) => {
      const { publisher, log } = start(mode, harness.store, async (_, tx) => {
        await run(tx, "COMMIT");
        throw new Error("no stock");
      });
      await publisher.publish(Placed, { order: "o1" }, { id: "m1" });
      const { error } = await log.until("delivery.parked");
      expect(error).toMatchObject({ code: "transaction-ended", cause: { message: "no stock" } });
      expect((await harness.contents(inboxOf(consumer))).parked).toMatchObject([{ id: "m1" }]);
    });

    if (client !== undefined) unawaitedFacts(fact, { ...library, client }, schema, (...args) => start(mode, ...args));

    fact("that rolls back to a savepoint continues", async (harness) => {
      const { publisher, log } = start(mode, harness.store, async (_, tx) => {
        for (const statement of ["SAVEPOINT s", "SELECT 1", "ROLLBACK TO SAVEPOINT s", "RELEASE SAVEPOINT s"]) {
          await run(tx, statement);
        }
      });
      await publisher.publish(Placed, { order: "o1" }, { id: "m1" });
      await log.until("delivery.handled");
      expect(log.of("delivery.retried")).toEqual([]);
      expect(await harness.effects()).toEqual(["o1"]);
    });
  });
}
