import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { manualRuntime } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { createOutbox, createRouter, durableInbox, inbox, inboxOf, PermanentError, transaction } from "postbox";
import { memoryDatabase, memoryStore } from "postbox/memory";
import { expect, it } from "vitest";
import { testKafka } from "../../../fixtures/kafka-broker.js";
import { constant } from "../../backoff.js";
import { defineEvent } from "../../event/define-event.js";
import { createMessage } from "../../message/message.js";
import { silent } from "../../telemetry/console.js";

const [messages, keys, partitions] = [20_000, 500, 12];
/** What no handler can handle. */
const poison = 7_777;
const failingKey = "k13";
const anything = { "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) } } as const;
const Effect = defineEvent({ type: "churn.effects.Written", schema: anything });
const timing = { leaseMs: 3_000, pollIntervalMs: 20 };

type Mode = "inbox" | "durableInbox";

describeOnEach("kafka", ({ url }) => {
  const broker = testKafka(() => url);

  it.each<Mode>(["inbox", "durableInbox"])(
    "members join, leave and crash while 20,000 messages of 500 keys are handled once, with %s",
    { timeout: 5 * 60_000 },
    async (mode) => {
      const seed = Number(process.env.POSTBOX_TEST_SEED ?? Math.floor(Math.random() * 1e9));
      console.log(`POSTBOX_TEST_SEED=${seed}`);
      const { random } = manualRuntime({ seed });
      const topic = `churn-${randomUUID()}`;
      const event = defineEvent({ type: `${topic}.Posted`, topic, schema: anything, key: () => "" });
      const harness = await broker.harness("binary");
      await harness.bind(topic, [event], { streams: partitions });
      const database = memoryDatabase();
      const members = new Set<Member>();

      function join(): Member {
        const store = memoryStore({ database });
        const receiver = harness.receiver({ queue: topic, prefetch: 50 });
        const stopping = new AbortController();
        const outbox = createOutbox(store, { source: "/effects" });
        const router = createRouter(topic, {
          backoff: constant(5),
          maxAttempts: 4,
          concurrency: 20,
          telemetry: silent,
          shutdownTimeoutMs: 5_000,
        })
          .use(transaction(store))
          .use(mode === "inbox" ? inbox(store, timing) : durableInbox(store, timing))
          .on(event, async (data, { tx, message: { key = "" }, attempt }) => {
            const n = Number(data);
            await outbox.in(tx).publish(Effect, n, { key });
            if (random() < 0.2) await pause(random() * 5);
            if (n === poison) throw new PermanentError("no such order");
            if (key === failingKey && attempt === 1) throw new Error("it fails the first time");
          });
        const running = router.run(receiver, stopping.signal);
        running.catch(() => {});
        const member: Member = {
          async leave() {
            members.delete(member);
            stopping.abort();
            await running;
          },
          async crash() {
            members.delete(member);
            store.crash();
            await harness.crash(receiver);
            stopping.abort();
            await running.catch(() => {});
          },
        };
        members.add(member);
        return member;
      }

      const effects = () => memoryStore({ database }).contents("outbox").pending;
      const parked = () => memoryStore({ database }).contents(inboxOf(topic)).parked;
      const sending = (async () => {
        const sender = harness.sender();
        for (let from = 0; from < messages; from += 500) {
          const batch = Array.from({ length: 500 }, (_, at) => {
            const n = from + at;
            const data = Buffer.from(`${n}`);
            return createMessage({ id: `m${n}`, source: "/s", type: event.type, topic, key: `k${n % keys}`, data });
          });
          await sender.send(batch, () => {}, new AbortController().signal);
          await pause(250);
        }
      })();
      try {
        for (let n = 0; n < 3; n++) join();
        const giveUp = Date.now() + 200_000;
        while (effects().length + parked().length < messages && Date.now() < giveUp) {
          await pause(1_000 + random() * 1_500);
          const [oldest] = members;
          const chance = random();
          if (members.size < 2 || (members.size < 5 && chance < 0.5)) join();
          else if (chance < 0.75) await oldest?.leave();
          else await oldest?.crash();
        }
        await sending;
        expect(parked().map(({ message }) => message.id)).toEqual([`m${poison}`]);
        const seen = effects().map(({ data, key }) => ({ key, n: Number(Buffer.from(data).toString()) }));
        const expected = Array.from({ length: messages }, (_, n) => n).filter((n) => n !== poison);
        expect(seen.map(({ n }) => n).sort((a, b) => a - b)).toEqual(expected);
        if (mode === "inbox") return;
        for (const key of new Set(seen.map((each) => each.key))) {
          const ofKey = seen.filter((each) => each.key === key).map(({ n }) => n);
          expect(ofKey).toEqual([...ofKey].sort((a, b) => a - b));
        }
      } finally {
        for (const member of members) await member.leave();
        await harness.close();
      }
    },
  );
});

interface Member {
  /** Stops in good order. */
  leave(): Promise<void>;
  /** Ends like a process that was killed, with everything that it has open. */
  crash(): Promise<void>;
}
