import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { patienceMs, patiently } from "../patience.js";
import { settlesBefore } from "../settles-before.js";
import type { Consumer } from "./consume.js";
import { anotherQueueIsServed, expectNothingMore } from "./nothing-more.js";
import { type Stage, type TransportFact, testEvent } from "./transport-facts.js";

/** Which receiver gets which messages, in what order, and how many at a time. */
export function receivingFacts(fact: TransportFact): void {
  const sendMany = ({ send, message }: Stage, count: number) =>
    send(...Array.from({ length: count }, (_, index) => message(`m${index}`)));

  describe("a receiver", () => {
    fact("gets messages that were sent while it was stopped", async (stage) => {
      await sendMany(stage, 5);
      const received = await stage.consume().take(5);
      expect(received.map((delivery) => delivery.message.id)).toEqual(["m0", "m1", "m2", "m3", "m4"]);
    });

    fact("that was prepared gets messages that were sent before it first ran", async (stage) => {
      const { event, send, message, consume, harness } = stage;
      const queue = `prepared-${stage.queue}`;
      const subscription = { consumer: queue, events: [event] };
      for (let twice = 0; twice < 2; twice++) await harness.receiver({ queue }).prepare?.(subscription);
      await send(message("m1"), message("m2"));
      const received = await consume({ queue }).take(2);
      expect(received.map((delivery) => delivery.message.id)).toEqual(["m1", "m2"]);
    });

    fact("gets what its subscription names, even if its queue was not bound before", async (stage) => {
      const { event, send, message, consume } = stage;
      const consumer = consume({ queue: `late-${stage.queue}` });
      await patiently(consumer.ready, () => "the queue");
      await send(message("m1", { type: event.type }));
      expect((await consumer.next()).message.id).toBe("m1");
    });

    fact("gets only what its queue is bound to", "selectsTypes", async (stage) => {
      const { harness, event, send, message, consume } = stage;
      const other = testEvent(event.topic, "Other");
      await harness.bind(`other-${event.topic}`, [other]);
      await send(message("m1", { type: other.type }), message("m2"));
      const consumer = consume();
      expect((await consumer.next()).message.id).toBe("m2");
      await expectNothingMore(stage, consumer);
    });

    fact("on another queue gets its own copy", async ({ harness, queue, event, send, message, consume }) => {
      await harness.bind(`second-${queue}`, [event]);
      await send(message("m1"));
      const [first, second] = [await consume().next(), await consume({ queue: `second-${queue}` }).next()];
      expect([first.message.id, second.message.id]).toEqual(["m1", "m1"]);
      await first.ack();
      await second.ack();
    });

    fact("on the same queue shares the messages: each goes to one", async (stage) => {
      const both = [stage.consume(), stage.consume()];
      await sendMany(stage, 40);
      const seen = () => both.flatMap((consumer) => consumer.deliveries.map((delivery) => delivery.message.id));
      await expect.poll(() => new Set(seen()).size, { timeout: patienceMs }).toBe(40);
      // A message that was delivered to both would arrive now.
      await stage.send(stage.message("last"));
      await expect.poll(seen, { timeout: patienceMs }).toContain("last");
      expect(
        seen()
          .filter((id) => id !== "last")
          .sort(),
      ).toEqual(Array.from({ length: 40 }, (_, index) => `m${index}`).sort());
    });

    fact("declares what its broker can do as claimed", async ({ harness, queue, features }) => {
      const { settles = "each", selects = "type" } = harness.receiver({ queue });
      expect([settles === "each", selects === "type"]).toEqual([features.settlesEach, features.selectsTypes]);
    });

    fact("leaves messages that it has no room for to other receivers", ["prefetch", "competing"], async (stage) => {
      const full = stage.consume({ prefetch: 1 });
      await sendMany(stage, 2);
      expect((await full.next()).message.id).toBe("m0");
      expect((await stage.consume({ prefetch: 1 }).next()).message.id).toBe("m1");
      expect(full.deliveries).toHaveLength(1);
    });

    fact("has no more unsettled deliveries than its prefetch", "prefetch", async (stage) => {
      const consumer = stage.consume({ prefetch: 3 });
      await sendMany(stage, 10);
      const [first, second] = await consumer.take(3);
      await anotherQueueIsServed(stage);
      expect(consumer.deliveries).toHaveLength(3);
      await first?.ack();
      await consumer.next();
      await anotherQueueIsServed(stage);
      expect(consumer.deliveries).toHaveLength(4);
      await (stage.features.settlesEach ? second?.retry(60_000) : second?.ack());
      await consumer.next();
      expect(consumer.deliveries).toHaveLength(5);
    });

    fact("has no more unsettled bytes than its prefetch, but always one message", "prefetchBytes", async (stage) => {
      const { send, message, consume } = stage;
      const data = new Uint8Array(10_000);
      await send(...["m1", "m2", "m3", "m4"].map((id) => message(id, { data })));
      const consumer = consume({ prefetchBytes: 25_000 });
      const [first] = await consumer.take(2);
      await anotherQueueIsServed(stage);
      expect(consumer.deliveries).toHaveLength(2);
      await first?.ack();
      await consumer.next();
      await consumer.crash();
      const tight = consume({ prefetchBytes: 5000 });
      await (await tight.next()).ack();
      await tight.next();
      await anotherQueueIsServed(stage);
      expect(tight.deliveries).toHaveLength(2);
    });

    fact("delivers the next message when the last was taken, not before", async (stage) => {
      const room = gate();
      const consumer = stage.consume({ accept: () => room.opened });
      await sendMany(stage, 3);
      await consumer.next();
      await anotherQueueIsServed(stage);
      expect(consumer.deliveries).toHaveLength(1);
      room.open();
      expect((await consumer.take(2)).map((delivery) => delivery.message.id)).toEqual(["m1", "m2"]);
    });

    fact("gets the messages of a key in the order they were sent in", async ({ send, message, consume }) => {
      const consumer = consume();
      const names = Array.from({ length: 90 }, (_, index) => `${index % 3}-${Math.floor(index / 3)}`);
      for (let start = 0; start < names.length; start += 15) {
        const batch = names.slice(start, start + 15);
        await send(...batch.map((name) => message(name, { key: name.slice(0, 1) })));
      }
      const seen: string[] = [];
      for (const _ of names) {
        const delivery = await consumer.next();
        seen.push(delivery.message.id);
        await delivery.ack();
      }
      for (const key of ["0", "1", "2"]) {
        const ofKey = (all: readonly string[]) => all.filter((name) => name.startsWith(key));
        expect(ofKey(seen)).toEqual(ofKey(names));
      }
    });

    fact("gets the messages of a key in order again after a crash", async (stage) => {
      const { send, message, consume } = stage;
      await send(...[1, 2, 3, 4, 5].map((index) => message(`m${index}`, { key: "k" })));
      const dead = consume();
      await dead.take(3);
      await dead.crash();
      const again = await consume().take(5);
      expect(again.map((delivery) => delivery.message.id)).toEqual(["m1", "m2", "m3", "m4", "m5"]);
    });
  });

  describe("receivers of one queue that take turns", () => {
    fact("keep the keys in order, even if one crashes and the next takes over", "singleActive", async (stage) => {
      const { send, message, consume, harness, event } = stage;
      const queue = `turns-${stage.queue}`;
      await harness.bind(queue, [event], { singleActive: true });
      const first = consume({ queue, singleActive: true, prefetch: 1 });
      const names = Array.from({ length: 60 }, (_, index) => `${index % 3}-${Math.floor(index / 3)}`);
      await send(...names.map((name) => message(name, { key: name.slice(0, 1), type: event.type })));
      const seen: string[] = [];
      const handleFrom = async (consumer: Consumer) => {
        const delivery = await consumer.next();
        seen.push(delivery.message.id);
        await delivery.ack();
      };
      // The first receiver is active before the second one starts, and continues when the second one is there.
      await handleFrom(first);
      const second = consume({ queue, singleActive: true, prefetch: 1 });
      if (stage.features.health) {
        await expect.poll(() => second.receiver.health?.().status, { timeout: patienceMs }).toBe("connected");
      }
      while (seen.length < 30) await handleFrom(first);
      expect(second.deliveries).toEqual([]);
      await first.crash();
      while (new Set(seen).size < names.length) await handleFrom(second);
      const firsts = [...new Set(seen)];
      for (const key of ["0", "1", "2"]) {
        const ofKey = (all: readonly string[]) => all.filter((name) => name.startsWith(key));
        expect(ofKey(firsts)).toEqual(ofKey(names));
      }
    });
  });

  describe("an aborted receiver", () => {
    /**
     * Stops like a router: waiting deliveries are released at once, and running ones end later, the last of all
     * deliveries.
     */
    async function stopAmidMany(stage: Stage, options: { readonly queue?: string; readonly singleActive?: boolean }) {
      const first = stage.consume(options);
      await sendMany(stage, 100);
      const taken = await first.take(100);
      first.abort();
      await Promise.all(taken.slice(1, -1).map((delivery) => delivery.release()));
      await taken[0]?.ack();
      await taken.at(-1)?.ack();
      await first.running;
      const second = stage.consume(options);
      const again = await second.take(98);
      expect(again.map((delivery) => delivery.message.id)).toEqual(Array.from({ length: 98 }, (_, at) => `m${at + 1}`));
    }

    fact("gives back all unacknowledged messages in order", (stage) => stopAmidMany(stage, {}));

    fact("that is active gives back all unacknowledged messages in order", "singleActive", async (stage) => {
      const queue = `turns-${stage.queue}`;
      await stage.harness.bind(queue, [stage.event], { singleActive: true });
      await stopAmidMany(stage, { queue, singleActive: true });
    });

    fact("returns at once when nothing is outstanding", async (stage) => {
      const consumer = stage.consume();
      await stage.send(stage.message("m1"));
      await (await consumer.next()).ack();
      consumer.abort();
      await patiently(consumer.running, () => "the end");
    });

    fact("delivers nothing more, and returns when the last delivery is settled", async (stage) => {
      const consumer = stage.consume();
      await sendMany(stage, 2);
      const [first, second] = await consumer.take(2);
      consumer.abort();
      await stage.send(stage.message("late"));
      await first?.ack();
      expect(await settlesBefore(consumer.running, anotherQueueIsServed(stage))).toBe(false);
      expect(consumer.deliveries).toHaveLength(2);
      await second?.ack();
      await consumer.running;
      const heir = stage.consume();
      expect((await heir.next()).message.id).toBe("late");
      expect((await heir.next()).message.id).toBe("passing");
      await expectNothingMore(stage, heir);
    });

    fact("leaves messages that it has not delivered to others", async (stage) => {
      const room = gate();
      const consumer = stage.consume({ accept: () => room.opened });
      await sendMany(stage, 3);
      const first = await consumer.next();
      consumer.abort();
      room.open();
      await first.ack();
      await patiently(consumer.running, () => "the end");
      expect(consumer.deliveries).toHaveLength(1);
      const rest = await stage.consume().take(2);
      expect(rest.map((delivery) => delivery.message.id)).toEqual(["m1", "m2"]);
    });
  });
}
