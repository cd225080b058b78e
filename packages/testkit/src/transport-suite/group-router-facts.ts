import { constant, createOutbox, createRouter, durableInbox, inbox, inboxOf, silent, transaction } from "postbox";
import { type MemoryDatabase, memoryDatabase, memoryStore } from "postbox/memory";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { patienceMs } from "../patience.js";
import { telemetryLog } from "../telemetry-log.js";
import { type DividedTopic, dividedTopic, keyedMessages, lastOfEachStream } from "./divided-topic.js";
import { expectNothingMore } from "./nothing-more.js";
import { type Stage, type TransportFact, testEvent } from "./transport-facts.js";

const patience = { timeout: patienceMs };
const Effect = testEvent("testkit.effects", "Written");
const timing = { leaseMs: 1_500, pollIntervalMs: 20 };

/** Routers with an inbox, on streams and groups. */
export function groupRouterFacts(fact: TransportFact): void {
  describe("routers on a topic with streams", () => {
    fact("do not let a hot key of one stream hold up the others", "streams", async (stage) => {
      const topic = await dividedTopic(stage, 4);
      const hot = Array.from({ length: 30 }, (_, n) => topic.message(`hot-${n}`, { key: "hot", data: json(n) }));
      await stage.send(...hot, ...keyedMessages(topic, 60, 20));
      const streams = await topic.streamsById(90);
      const cool = [...streams].filter(([, stream]) => stream !== streams.get("hot-0")).map(([id]) => id);
      const [cooled, handled] = [gate(), new Set<string>()];
      const store = memoryStore();
      const router = createRouter(topic.queue, { maxBuffered: 2, concurrency: 4 })
        .use(transaction(store))
        .use(inbox(store, timing))
        .on(topic.event, async (_, { message }) => {
          if (message.key === "hot") await cooled.opened;
          handled.add(message.id);
        });
      const stopping = new AbortController();
      const running = router.run(stage.harness.receiver({ queue: topic.queue }), stopping.signal);
      try {
        await expect.poll(() => cool.filter((id) => !handled.has(id)), patience).toEqual([]);
        cooled.open();
        await expect.poll(() => handled.size, patience).toBe(90);
      } finally {
        cooled.open();
        stopping.abort();
        await running;
      }
    });

    fact("park a poison message in the inbox; those behind it are handled and committed", "streams", async (stage) => {
      const topic = await dividedTopic(stage, 2);
      await stage.send(...keyedMessages(topic, 40, 10));
      const store = memoryStore();
      const handled = new Set<number>();
      const router = createRouter(topic.queue, { maxAttempts: 2, backoff: constant(1), telemetry: silent })
        .use(transaction(store))
        .use(inbox(store, timing))
        .on(topic.event, (data) => {
          if (Number(data) % 10 === 0) throw new Error(`${data} is poison`);
          handled.add(Number(data));
        });
      const stopping = new AbortController();
      const running = router.run(stage.harness.receiver({ queue: topic.queue }), stopping.signal);
      try {
        const parked = () => store.contents(inboxOf(topic.queue)).parked.length;
        await expect.poll(() => [handled.size, parked()], patience).toEqual([36, 4]);
      } finally {
        stopping.abort();
        await running;
      }
      await expectNothingMore(stage, topic.consume(), lastOfEachStream(topic));
    });

    fact("ignore the types of a topic that they do not handle, and do not store them", "streams", async (stage) => {
      const topic = await dividedTopic(stage, 2);
      const neighbours = Array.from({ length: 20 }, (_, n) => ({
        ...topic.message(`neighbour-${n}`, { key: `k${n}` }),
        type: `${topic.event.type}.Neighbour`,
      }));
      await stage.send(...neighbours, ...keyedMessages(topic, 20, 10));
      const store = memoryStore();
      const log = telemetryLog();
      const router = createRouter(topic.queue, { telemetry: log.telemetry })
        .use(transaction(store))
        .use(durableInbox(store, timing))
        .on(topic.event, () => {});
      const stopping = new AbortController();
      const running = router.run(stage.harness.receiver({ queue: topic.queue }), stopping.signal);
      try {
        await log.until("delivery.handled", 20);
        if (!stage.features.selectsTypes) await log.until("delivery.ignored", 20);
      } finally {
        stopping.abort();
        await running;
      }
      expect(log.of("delivery.stored").filter(({ id }) => id.startsWith("neighbour"))).toEqual([]);
      expect(log.of("delivery.parked")).toEqual([]);
      await expectNothingMore(stage, topic.consume(), lastOfEachStream(topic));
    });

    for (const mode of ["inbox", "durableInbox"] as const) {
      const order = mode === "durableInbox" ? ", and in order per key" : "";
      fact(`write every effect once${order} while members join and leave, with ${mode}`, "streams", async (stage) => {
        const topic = await dividedTopic(stage, 4);
        const database = memoryDatabase();
        const members = [groupMember(stage, topic, database, mode)];
        const written = () => memoryStore({ database }).contents("outbox").pending;
        // Few keys, so that several messages of one are in flight at a time.
        const messages = keyedMessages(topic, 3_000, 8);
        try {
          for (let step = 0; step < 30; step++) {
            await stage.send(...messages.slice(step * 100, step * 100 + 100));
            // Each change comes in the middle of the work, however fast that is.
            await expect.poll(() => written().length, patience).toBeGreaterThanOrEqual(step * 70);
            if (members.length < 4 && step % 3 !== 2) members.push(groupMember(stage, topic, database, mode));
            else await members.splice(step % members.length, 1)[0]?.[step % 2 === 0 ? "crash" : "leave"]();
            if (members.length === 0) members.push(groupMember(stage, topic, database, mode));
          }
          await expect.poll(() => written().length, { timeout: 60_000 }).toBe(3_000);
        } finally {
          for (const member of members) await member.leave();
        }
        const effects = written().map(({ data, key }) => ({ key, n: Number(Buffer.from(data).toString()) }));
        expect(effects.map(({ n }) => n).sort((a, b) => a - b)).toEqual(messages.map((_, n) => n));
        if (mode === "inbox") return;
        for (const key of new Set(effects.map((effect) => effect.key))) {
          const ofKey = effects.filter((effect) => effect.key === key).map(({ n }) => n);
          expect(ofKey).toEqual([...ofKey].sort((a, b) => a - b));
        }
      });
    }
  });
}

/** Simulates a process of its own: it stops in good order, or crashes with everything that it has open. */
function groupMember(
  { harness }: Stage,
  { queue, event }: DividedTopic,
  database: MemoryDatabase,
  mode: "inbox" | "durableInbox",
) {
  const store = memoryStore({ database });
  const outbox = createOutbox(store, { source: "/effects" });
  const receiver = harness.receiver({ queue, prefetch: 20 });
  const stopping = new AbortController();
  const router = createRouter(queue, {
    backoff: constant(5),
    concurrency: 5,
    telemetry: silent,
    shutdownTimeoutMs: 5_000,
  })
    .use(transaction(store))
    .use(mode === "inbox" ? inbox(store, timing) : durableInbox(store, timing))
    .on(event, async (data, { tx, message: { key = "" } }) => {
      await outbox.in(tx).publish(Effect, data, { key });
      await new Promise(setImmediate);
    });
  const running = router.run(receiver, stopping.signal);
  running.catch(() => {});
  return {
    async leave() {
      stopping.abort();
      await running;
    },
    async crash() {
      store.crash();
      await harness.crash(receiver);
      stopping.abort();
      await running.catch(() => {});
    },
  };
}

const json = (value: unknown) => Buffer.from(JSON.stringify(value));
