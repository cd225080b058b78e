import {
  constant,
  createRouter,
  defineEvent,
  inbox,
  outboxReceiver,
  type RunsReceiver,
  type StandardSchema,
  type Store,
  transaction,
} from "postbox";
import type { Delivery } from "postbox/transport";
import { describe, expect } from "vitest";
import { freezeAt } from "../freeze-at.js";
import { gate } from "../gate.js";
import { testMessage } from "../messages.js";
import { settlesBefore } from "../settles-before.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox, type StoreHarness, type StoreProcess } from "../store-suite/store-harness.js";
import { telemetryLog } from "../telemetry-log.js";
import { anHourMs, commit, receiverTiming } from "./relay-run.js";
import { consumeFrom, mortalRuntime, type SourceRun } from "./source-run.js";

const settled = { code: "delivery-settled" };
const revoked = { code: "delivery-revoked" };
const inKey = (key: string, ...ids: string[]) => ids.map((id) => testMessage(id, { key }));

export function sourceFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("a source", () => {
    for (const order of ["key", "total", "none"] as const) {
      fact(`delivers committed messages; an ack resolves when it is stored (${order})`, async (harness) => {
        await commit(harness, ...inKey("k", "1", "2"));
        const consumer = consumeFrom(harness.store, { order });
        const first = await consumer.until(1);
        expect(first).toMatchObject({ attempt: 1, message: { id: "1", key: "k" } });
        await first.ack();
        expect(await harness.contents("outbox")).toEqual({ ...emptyBox, pending: ["2"] });
        await (await consumer.until(2)).ack();
        for (const verb of [() => first.ack(), () => first.retry(0), () => first.park(new Error()), first.release]) {
          await expect(verb()).rejects.toMatchObject(settled);
        }
        await consumer.stop();
        expect(await harness.contents("outbox")).toEqual(emptyBox);
      });

      fact(`parks at once with the reason, and continues (${order})`, async (harness) => {
        await commit(harness, ...inKey("k", "1", "2"));
        const consumer = consumeFrom(harness.store, { order });
        await (await consumer.until(1)).park(new Error("nobody wants it"));
        const { parked } = await harness.contents("outbox");
        expect(parked).toEqual([{ id: "1", error: "nobody wants it" }]);
        await (await consumer.until(2)).ack();
        await consumer.stop();
        expect(consumer.ids()).toEqual(["1", "2"]);
      });

      fact(`parks a retried message when its attempts are spent (${order})`, async (harness) => {
        await commit(harness, testMessage("1"));
        const consumer = consumeFrom(harness.store, { order, maxAttempts: 3 });
        for (let attempt = 1; attempt <= 3; attempt++) {
          const delivery = await consumer.until(attempt);
          expect(delivery.attempt).toBe(attempt);
          await delivery.retry(0, new Error(`failure ${attempt}`));
        }
        await consumer.stop();
        expect(consumer.deliveries).toHaveLength(3);
        const parked = [{ id: "1", error: "failure 3" }];
        expect(await harness.contents("outbox")).toEqual({ ...emptyBox, parked });
      });

      fact(`redelivers a released message, uncounted and in its place (${order})`, async (harness) => {
        await commit(harness, ...inKey("k", "1", "2"));
        const consumer = consumeFrom(harness.store, { order, maxAttempts: 1, maxInFlight: 1 });
        await (await consumer.until(1)).release();
        const again = await consumer.until(2);
        // Without an order, the message that has waited longest comes first.
        const [second, third] = order === "none" ? ["2", "1"] : ["1", "2"];
        expect(again).toMatchObject({ attempt: 1, message: { id: second } });
        await again.ack();
        const last = await consumer.until(3);
        expect(last).toMatchObject({ attempt: 1, message: { id: third } });
        await last.ack();
        await consumer.stop();
        expect(await harness.contents("outbox")).toEqual(emptyBox);
      });

      fact(`delivers nothing after a stop, and waits for unsettled deliveries (${order})`, async (harness) => {
        await commit(harness, testMessage("1"));
        const consumer = consumeFrom(harness.store, { order });
        const delivery = await consumer.until(1);
        const stopped = consumer.stop();
        await commit(harness, testMessage("2"));
        // Another receiver has nothing to wait for, so it starts and stops while the first one is still stopping.
        expect(await settlesBefore(stopped, consumeFrom(harness.another(), { order }).stop())).toBe(false);
        await delivery.ack();
        await stopped;
        expect(consumer.ids()).toEqual(["1"]);
        expect(await harness.contents("outbox")).toEqual({ ...emptyBox, pending: ["2"] });
        expect(consumer.log.of("relay.released")).toHaveLength(1);
      });
    }

    fact("a retry waits for its delay and holds its key, which stays in order", async (harness) => {
      await commit(harness, ...inKey("a", "a1", "a2", "a3"));
      const consumer = consumeFrom(harness.store, { backoff: constant(1) });
      await (await consumer.until(1)).retry(anHourMs);
      const failed = await consumer.log.until("message.failed");
      expect(failed).toMatchObject({ id: "a1", attempt: 1, retryInMs: anHourMs });
      await commit(harness, ...inKey("b", "b1"), ...inKey("a", "a4"));
      await (await consumer.until(2)).ack();
      await consumer.log.until("message.held", 3);
      expect(await harness.contents("outbox")).toEqual({ ...emptyBox, wait: ["a1", "a2", "a3", "a4"], holds: ["a"] });
      await harness.advance(anHourMs);
      for (let count = 3; count <= 6; count++) {
        const delivery = await consumer.until(count);
        expect(delivery.attempt).toBe(count === 3 ? 2 : 1);
        await delivery.ack();
      }
      await consumer.stop();
      expect(consumer.ids()).toEqual(["a1", "b1", "a1", "a2", "a3", "a4"]);
      expect(await harness.contents("outbox")).toEqual(emptyBox);
    });

    fact("with a total order, all messages wait for a retry", async (harness) => {
      await commit(harness, ...inKey("a", "1"), ...inKey("b", "2"));
      const consumer = consumeFrom(harness.store, { order: "total" });
      await (await consumer.until(1)).retry(1);
      for (const count of [2, 3]) await (await consumer.until(count)).ack();
      await consumer.stop();
      expect(consumer.ids()).toEqual(["1", "1", "2"]);
    });

    fact("has one unsettled message of a key, even if more are found meanwhile", async (harness) => {
      await commit(harness, ...inKey("a", "a1", "a2"));
      const consumer = consumeFrom(harness.store);
      const first = await consumer.until(1);
      await commit(harness, ...inKey("a", "a3"), ...inKey("b", "b1"));
      await consumer.until(2);
      await commit(harness, ...inKey("c", "c1"));
      await consumer.until(3);
      expect(consumer.ids()).toEqual(["a1", "b1", "c1"]);
      await first.ack();
      for (let count = 2; count <= 5; count++) await (await consumer.until(count)).ack();
      await consumer.stop();
      expect(consumer.ids()).toEqual(["a1", "b1", "c1", "a2", "a3"]);
    });

    fact("limits unsettled messages by number and by bytes", async (harness) => {
      const large = { data: new Uint8Array(2_000) };
      for (const limit of [{ maxInFlight: 2 }, { maxInFlightBytes: 4_000 }]) {
        await commit(harness, ...["1", "2", "3", "4"].map((id) => testMessage(id, large)));
        const unsettled: string[] = [];
        let most = 0;
        const take = ({ message }: Delivery) => {
          most = Math.max(most, unsettled.push(message.id));
        };
        const consumer = consumeFrom(harness.store, { ...limit, take });
        await consumer.until(2);
        // A read on another path: the relay hands over what it has read before this is answered.
        await harness.contents("outbox");
        for (let count = 1; count <= 4; count++) {
          const delivery = await consumer.until(count);
          unsettled.splice(unsettled.indexOf(delivery.message.id), 1);
          await delivery.ack();
        }
        expect(most).toBe(2);
        await consumer.stop();
      }
    });

    fact("unsettled messages of a crashed process go to another one", "processes", async (harness) => {
      await commit(harness, ...inKey("k", "1", "2"));
      const process = await start(harness);
      const { runtime, die } = mortalRuntime();
      const first = consumeFrom(process.store, { runtime });
      await first.until(1);
      die();
      await process.kill();
      await harness.advance(receiverTiming.leaseMs);
      const heir = consumeFrom(harness.another());
      for (const count of [1, 2]) await (await heir.until(count)).ack();
      await heir.stop();
      expect(heir.ids()).toEqual(["1", "2"]);
      expect(heir.log.of("message.suspected")[0]).toMatchObject({ id: "1", crashes: 1 });
      expect(await harness.contents("outbox")).toEqual(emptyBox);
    });

    for (const order of ["key", "total"] as const) {
      fact(`a message that crashes its consumers is parked, and all others are handled (${order})`, "processes", (h) =>
        killer(h, order),
      );

      const name = `whose lane was lost rejects instead of settling, and another one redelivers (${order})`;
      fact(name, async (harness) => {
        await commit(harness, testMessage("1", { key: "k" }));
        const { runtime, die } = mortalRuntime();
        const stale = consumeFrom(harness.another(), { order, runtime: { schedule: runtime.schedule as never } });
        const delivery = await stale.until(1);
        // It no longer renews its lease, but its handler still runs.
        die();
        await harness.advance(receiverTiming.leaseMs);
        const heir = consumeFrom(harness.another(), { order });
        const again = await heir.until(1);
        await expect(delivery.ack()).rejects.toMatchObject(revoked);
        await expect(delivery.release()).rejects.toMatchObject(settled);
        expect(await harness.contents("outbox")).toEqual({ ...emptyBox, pending: ["1"] });
        await again.ack();
        await heir.stop();
        expect(await harness.contents("outbox")).toEqual(emptyBox);
        await stale.stop();
      });
    }

    fact(
      "a router on it handles each message once, even after a crash between commit and ack",
      "processes",
      async (h) => {
        await commit(h, ...["1", "2", "3"].map((id) => testMessage(id, { key: id })));
        const process = await start(h);
        const { runtime, reached } = freezeAt("transaction.committed", { times: 2 });
        routerOn(process.store, h, { runtime }).start();
        await reached;
        await process.kill();
        await h.advance(receiverTiming.leaseMs);
        const { pending } = await h.contents("outbox");
        const heir = routerOn(h.another(), h);
        heir.start();
        await heir.log.until("delivery.acked", pending.length);
        await heir.router.stop();
        expect([...(await h.effects())].sort()).toEqual(["1", "2", "3"]);
        expect(heir.log.of("delivery.skipped").length).toBeGreaterThan(0);
        expect(await h.contents("outbox")).toEqual(emptyBox);
      },
    );

    fact("a router on it retries by the row, and parks there", async (harness) => {
      await commit(harness, ...inKey("k", "bad", "good"));
      const { router, log, start } = routerOn(harness.store, harness, { fails: "bad", maxAttempts: 2 });
      start();
      await log.until("delivery.parked");
      await log.until("delivery.acked");
      await router.stop();
      expect(log.of("delivery.received").map(({ id, attempt }) => [id, attempt])).toEqual([
        ["bad", 1],
        ["bad", 2],
        ["good", 1],
      ]);
      const error = expect.stringContaining("[attempts-spent]");
      expect(await harness.contents("outbox")).toEqual({ ...emptyBox, parked: [{ id: "bad", error }] });
      expect(await harness.effects()).toEqual(["good"]);
    });
  });
}

const schema: StandardSchema<{ id: string }> = {
  "~standard": { version: 1, vendor: "testkit", validate: (value) => ({ value: value as { id: string } }) },
};
const Happened = defineEvent({ type: "testkit.facts.v1.Happened", schema });

interface RouterRun {
  readonly runtime?: ReturnType<typeof freezeAt>["runtime"];
  readonly fails?: string;
  readonly maxAttempts?: number;
}

/** A router behind a source that records each message that it has handled. */
function routerOn<Tx>(
  store: Store<Tx>,
  harness: StoreHarness<Tx>,
  { runtime = {}, fails, ...options }: RouterRun = {},
) {
  const log = telemetryLog();
  const { telemetry } = log;
  const untyped: Store = store as Store;
  const router: RunsReceiver = createRouter("facts", { ...options, telemetry, runtime, backoff: constant(1) })
    .use(transaction(untyped))
    .use(inbox(untyped))
    .on(Happened, async ({ id }, { tx }) => {
      await harness.effect(tx as Tx, id);
      if (id === fails) throw new Error(`it is ${id}`);
    });
  const receiver = outboxReceiver(store, { ...receiverTiming, telemetry, runtime });
  return { router, log, start: () => router.start(receiver) };
}

async function start<Tx>(harness: StoreHarness<Tx>): Promise<StoreProcess<Tx>> {
  if (harness.process === undefined) throw new Error("the feature 'processes' needs harness.process()");
  return harness.process();
}

async function killer<Tx>(harness: StoreHarness<Tx>, order: "key" | "total"): Promise<void> {
  const innocents = ["1", "2", "3", "4"];
  await commit(harness, ...["1", "2", "killer", "3", "4"].map((id) => testMessage(id, { key: id })));
  const handled = new Set<string>();
  let deaths = 0;
  for (let alive = false; !alive && deaths <= 10; ) {
    const process = await start(harness);
    const { runtime, die } = mortalRuntime();
    const killed = gate();
    const consumer: SourceRun = consumeFrom(process.store, {
      order,
      runtime,
      async take(delivery) {
        if (delivery.message.id === "killer") return killed.open();
        handled.add(delivery.message.id);
        await delivery.ack();
      },
    });
    alive = await Promise.race([
      killed.opened.then(() => false),
      consumer.log.until("message.parked").then(() => true),
    ]);
    if (alive) {
      await consumer.log.until("relay.drained");
      await consumer.stop();
      continue;
    }
    deaths++;
    die();
    await process.kill();
    await harness.advance(receiverTiming.leaseMs);
  }
  expect(deaths).toBeGreaterThan(1);
  expect(deaths).toBeLessThanOrEqual(4);
  expect(handled).toEqual(new Set(innocents));
  const parked = [{ id: "killer", error: expect.stringContaining("[message-suspect]") }];
  expect(await harness.contents("outbox")).toEqual({ ...emptyBox, parked });
}
