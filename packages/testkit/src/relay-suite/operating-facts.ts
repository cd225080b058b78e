import {
  createRouter,
  defineEvent,
  inbox,
  type Message,
  outboxReceiver,
  type RelayOptions,
  type Store,
  transaction,
} from "postbox";
import { memoryBroker } from "postbox/memory";
import type { Delivery } from "postbox/transport";
import { describe, expect } from "vitest";
import { faultySender } from "../faulty-sender.js";
import { testMessage } from "../messages.js";
import { patiently } from "../patience.js";
import { recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox } from "../store-suite/store-harness.js";
import { telemetryLog } from "../telemetry-log.js";
import { anHourMs, commit, receiverTiming, relayOn, whileRunning } from "./relay-run.js";

const operator = { by: "fact" };
const long = "1999-12-31T23:59:59Z";
const inAnHour = () => new Date(Date.now() + anHourMs);

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10));
}

/** Accepts every JSON object. */
const anything = { "~standard": { version: 1, vendor: "facts", validate: (value: unknown) => ({ value }) } } as const;

/** What an operator does with a box while relays are running. */
export function operatingFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("schedule", () => {
    fact("a scheduled message is sent when it is due, and holds up no other until then", async (harness) => {
      const sender = recordingSender();
      const relay = relayOn(harness.store, sender);
      await commit(
        harness,
        testMessage("later", { key: "k", deliverAt: inAnHour() }),
        testMessage("now", { key: "k" }),
        testMessage("past", { deliverAt: long }),
      );
      await whileRunning(relay, async () => {
        await sender.until(2);
        expect(sender.ids().sort()).toEqual(["now", "past"]);
        expect((await harness.contents("outbox")).scheduled).toEqual(["later"]);
        await harness.advance(anHourMs);
        await sender.until(3);
      });
      expect(sender.ids()[2]).toBe("later");
      for (const message of sender.messages) expect(message).not.toHaveProperty("deliverAt");
    });

    fact("scheduled messages are sent once and in order of their times, by any number of relays", async (harness) => {
      const sender = recordingSender();
      const relays = [relayOn(harness.store, sender), relayOn(harness.another(), sender)];
      const at = (n: number) => new Date(Date.now() + anHourMs - n * 1000);
      await commit(
        harness,
        ...Array.from({ length: 90 }, (_, n) => testMessage(`${n}`, { key: "k", deliverAt: at(n) })),
      );
      await harness.advance(anHourMs);
      for (const relay of relays) relay.start();
      try {
        await sender.until(90);
      } finally {
        for (const relay of relays) await relay.stop();
      }
      expect(sender.ids()).toEqual(Array.from({ length: 90 }, (_, n) => `${89 - n}`));
    });
  });

  describe("expiry", () => {
    const messages = (): Message[] => [
      testMessage("1", { key: "k", extensions: { expirytime: long } }),
      testMessage("2", { key: "k", extensions: { expirytime: "2999-01-01T00:00:00Z" } }),
      testMessage("3", { key: "k", extensions: { expirytime: long } }),
      testMessage("4", { key: "k" }),
    ];
    const modes: readonly RelayOptions[] = [{}, { onPark: "hold" }, { order: "total" }, { order: "none" }];
    for (const mode of modes) {
      const how = Object.values(mode).map((value) => `, with ${value}`);
      fact(`an expired message is parked with its reason, and its key continues${how}`, async (harness) => {
        const sender = recordingSender();
        await commit(harness, ...messages());
        const relay = relayOn(harness.store, sender, mode);
        await whileRunning(relay, async () => {
          await sender.until(2);
          await relay.log.until("message.parked", 2);
        });
        expect(sender.ids()).toEqual(["2", "4"]);
        const { parked, pending, wait } = await harness.contents("outbox");
        expect(parked.map(({ id }) => id).sort()).toEqual(["1", "3"]);
        for (const { error } of parked) expect(error).toContain("message-expired");
        expect([pending, wait]).toEqual([[], []]);
      });

      fact(`an expired message can be dropped, which leaves an entry in the audit${how}`, async (harness) => {
        const sender = recordingSender();
        await commit(harness, ...messages());
        const relay = relayOn(harness.store, sender, { ...mode, onExpired: "drop", onSent: "keep" });
        await whileRunning(relay, async () => {
          await sender.until(2);
          await relay.log.until("message.dropped", 2);
          await relay.log.until("message.sent", 2);
        });
        expect(sender.ids()).toEqual(["2", "4"]);
        const { parked, pending, wait, done } = await harness.contents("outbox");
        expect({ parked, pending, wait }).toEqual({ parked: [], pending: [], wait: [] });
        expect([...done].sort()).toEqual(["2", "4"]);
        const entries = await harness.store.admin.audit();
        expect(entries.flatMap(({ ids }) => ids).sort()).toEqual(["1", "3"]);
        for (const { action, by, reason } of entries) {
          expect([action, by, reason]).toEqual(["drop", "relay", "its expirytime had passed"]);
        }
      });
    }

    fact("many expired messages of one key are settled together", async (harness) => {
      const many = Array.from({ length: 200 }, (_, n) =>
        testMessage(`${n}`, { key: "k", extensions: { expirytime: long } }),
      );
      await commit(harness, ...many);
      const relay = relayOn(harness.store, recordingSender());
      await whileRunning(relay, async () => void (await relay.log.until("message.parked", many.length)));
      expect(relay.log.of("message.held")).toEqual([]);
      expect(relay.log.of("relay.settled").length).toBeLessThan(20);
    });

    fact("an expired message can be sent anyway", async (harness) => {
      const sender = recordingSender();
      await commit(harness, ...messages());
      await whileRunning(relayOn(harness.store, sender, { onExpired: "send" }), () => sender.until(4));
      expect(sender.ids()).toEqual(["1", "2", "3", "4"]);
    });
  });

  describe("pause", () => {
    for (const order of ["key", "total"] as const) {
      fact(
        `a paused box sends nothing, loses nothing, and continues in place, with order ${order}`,
        async (harness) => {
          const { admin } = harness.store;
          const sender = recordingSender();
          const relay = relayOn(harness.store, sender, { order });
          await commit(harness, testMessage("1", { key: "k" }));
          await whileRunning(relay, async () => {
            await relay.log.until("message.sent");
            await admin.pause(operator);
            await relay.log.until("relay.paused");
            await relay.log.until("relay.released");
            await commit(harness, testMessage("2", { key: "k" }), testMessage("3", { key: "k" }));
            expect(await admin.stats()).toMatchObject({ paused: true, pending: { count: 2 }, lanes: { unowned: 64 } });
            expect(sender.ids()).toEqual(["1"]);
            await admin.resume(operator);
            await sender.until(3);
          });
          expect(sender.ids()).toEqual(["1", "2", "3"]);
        },
      );
    }
  });

  describe("pause of a source", () => {
    fact("nothing more is handed over, even while a handler takes long", async (harness) => {
      const { admin } = harness.store;
      const log = telemetryLog();
      const receiver = outboxReceiver(harness.store, { ...receiverTiming, telemetry: log.telemetry });
      const handed: Delivery[] = [];
      const stop = new AbortController();
      const deliver = async (delivery: Delivery) => void handed.push(delivery);
      const receiving = receiver.receive({ consumer: "facts", events: [], deliver }, stop.signal);
      try {
        await commit(harness, testMessage("1", { key: "k" }));
        await patiently(
          until(() => handed.length === 1),
          () => "the first to be handed over",
        );
        await admin.pause(operator);
        await log.until("relay.paused");
        await commit(harness, testMessage("2", { key: "k" }), testMessage("3"));
        await patiently(
          until(async () => (await admin.stats()).lanes.unowned >= 60),
          () => "most lanes given back",
        );
        expect(handed).toHaveLength(1);
        await handed[0]?.ack();
        await patiently(
          until(async () => (await admin.stats()).lanes.unowned === 64),
          () => "all lanes given back",
        );
        expect(handed).toHaveLength(1);
        await admin.resume(operator);
        await patiently(
          until(() => handed.length === 3),
          () => "the others to be handed over",
        );
        for (const delivery of handed.slice(1)) await delivery.ack();
      } finally {
        stop.abort();
        await receiving;
      }
    });
  });

  describe("parked messages", () => {
    fact("a retried message that held its key is sent before those behind it", async (harness) => {
      const { admin } = harness.store;
      const inner = recordingSender();
      let broken = true;
      const sender = faultySender(inner, ({ id }) => (broken && id === "1" ? "rejected" : undefined));
      await commit(harness, ...["1", "2", "3"].map((id) => testMessage(id, { key: "k" })));
      const relay = relayOn(harness.store, sender, { onPark: "hold" });
      await whileRunning(relay, async () => {
        await relay.log.until("message.held", 2);
        expect(await admin.stats()).toMatchObject({ heldKeys: { count: 1, forGood: 1 }, waiting: { count: 2 } });
        broken = false;
        expect(await admin.retry({ ids: ["1"] }, operator)).toEqual({ count: 1 });
        await inner.until(3);
        await commit(harness, testMessage("4", { key: "k" }));
        await inner.until(4);
      });
      expect(inner.ids()).toEqual(["1", "2", "3", "4"]);
      expect(await harness.contents("outbox")).toMatchObject({ parked: [], wait: [], pending: [] });
    });

    fact("a released key continues without the parked message", async (harness) => {
      const { admin } = harness.store;
      const inner = recordingSender();
      const sender = faultySender(inner, ({ id }) => (id === "1" ? "rejected" : undefined));
      await commit(harness, ...["1", "2", "3"].map((id) => testMessage(id, { key: "k" })));
      const relay = relayOn(harness.store, sender, { onPark: "hold" });
      await whileRunning(relay, async () => {
        await relay.log.until("message.held", 2);
        expect(await admin.release("other", operator)).toBe(false);
        expect(await admin.release("k", operator)).toBe(true);
        await inner.until(2);
        await commit(harness, testMessage("4", { key: "k" }));
        await inner.until(3);
        await relay.log.until("message.sent", 3);
      });
      expect(inner.ids()).toEqual(["2", "3", "4"]);
      expect(await harness.contents("outbox")).toMatchObject({ wait: [], pending: [] });
      expect(await admin.stats()).toMatchObject({ heldKeys: { count: 0, forGood: 0 }, parked: { count: 1 } });
    });

    fact("a key that is held with nothing behind it can be released, too", async (harness) => {
      const { admin } = harness.store;
      const inner = recordingSender();
      const sender = faultySender(inner, ({ id }) => (id === "1" ? "rejected" : undefined));
      await commit(harness, testMessage("1", { key: "k" }));
      const relay = relayOn(harness.store, sender, { onPark: "hold" });
      await whileRunning(relay, async () => {
        await relay.log.until("message.parked");
        expect(await admin.release("k", operator)).toBe(true);
        await commit(harness, testMessage("2", { key: "k" }), testMessage("3", { key: "k" }));
        await inner.until(2);
      });
      expect(inner.ids()).toEqual(["2", "3"]);
    });
  });

  describe("a total order", () => {
    fact("continues when the failing message is discarded", async (harness) => {
      const inner = recordingSender();
      const sender = faultySender(inner, ({ id }) => (id === "1" ? "failed" : undefined));
      await commit(harness, testMessage("1"), testMessage("2"));
      const relay = relayOn(harness.store, sender, { order: "total", maxAttempts: 1_000_000, backoff: () => 20 });
      await whileRunning(relay, async () => {
        await relay.log.until("message.failed", 2);
        expect(await harness.store.admin.discard({ ids: ["1"], status: "pending" }, operator)).toEqual({ count: 1 });
        await inner.until(1);
      });
      expect(inner.ids()).toEqual(["2"]);
      expect(await harness.contents("outbox")).toEqual(emptyBox);
    });
  });

  describe("messages that are done", () => {
    fact("a replay has no second effect behind an inbox", "concurrentTransactions", async (harness) => {
      const { store } = harness;
      const Happened = defineEvent({ type: "testkit.facts.v1.Happened", schema: anything });
      const broker = memoryBroker();
      const log = telemetryLog();
      const router = createRouter("facts", { telemetry: log.telemetry })
        .use(transaction(store as Store))
        .use(inbox(store as Store))
        .on(Happened, async (_, { tx, message }) => {
          await harness.effect(tx as Tx, message.id);
        });
      const stop = new AbortController();
      const handling = router.run(broker.receiver({ queue: "facts" }), stop.signal);
      const ids = Array.from({ length: 60 }, (_, n) => `m${n}`);
      await commit(harness, ...ids.map((id, n) => testMessage(id, { key: `k${n % 5}` })));
      const relay = relayOn(store, broker.sender(), { onSent: "keep" });
      try {
        await whileRunning(relay, async () => {
          await log.until("delivery.handled", ids.length);
          const { count, confirm } = await store.admin.dryRun("replay", {});
          expect(count).toBe(ids.length);
          expect(await store.admin.replay({}, { ...operator, confirm })).toEqual({ count });
          await log.until("delivery.skipped", ids.length);
        });
      } finally {
        stop.abort();
        await handling;
      }
      expect([...(await harness.effects())].sort()).toEqual([...ids].sort());
      expect((await harness.contents("outbox")).done).toHaveLength(2 * ids.length);
    });

    fact("messages are removed after their retention, and nothing else", async (harness) => {
      const inner = recordingSender();
      const sender = faultySender(inner, ({ id }) =>
        id === "parked" ? "rejected" : id === "waiting" ? "failed" : undefined,
      );
      await commit(harness, ...["old", "parked", "waiting"].map((id) => testMessage(id)));
      await commit(harness, testMessage("scheduled", { deliverAt: new Date(Date.now() + 100 * anHourMs) }));
      const options: RelayOptions = { onSent: "keep", retentionMs: 2 * anHourMs, cleanIntervalMs: 20 };
      const backoff = () => 100 * anHourMs;
      const relay = relayOn(harness.store, sender, { ...options, ...harness.rowByRow, backoff });
      await whileRunning(relay, async () => {
        await relay.log.until("message.sent");
        await relay.log.until("message.parked");
        await relay.log.until("message.failed");
        await harness.advance(3 * anHourMs);
        await relay.log.until((event) => event.name === "relay.cleaned" && event.removed > 0, "something was removed");
        await commit(harness, testMessage("new"));
        await relay.log.until("message.sent", 2);
      });
      const { done, parked, wait, scheduled } = await harness.contents("outbox");
      expect({ done, wait, scheduled }).toEqual({ done: ["new"], wait: ["waiting"], scheduled: ["scheduled"] });
      expect(parked.map(({ id }) => id)).toEqual(["parked"]);
    });
  });
}
