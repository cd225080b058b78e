import fc from "fast-check";
import type { Delivery } from "postbox/transport";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { patienceMs } from "../patience.js";
import { dividedTopic, keyedMessages, lastOfEachStream } from "./divided-topic.js";
import { expectNothingMore } from "./nothing-more.js";
import type { TransportFact } from "./transport-facts.js";

const patience = { timeout: patienceMs };
const idOf = ({ message }: Delivery) => message.id;
const isTakenBack = ({ signal }: Delivery) => signal?.aborted === true;

/** Topics that are divided into streams, and groups that share them. */
export function streamFacts(fact: TransportFact): void {
  describe("a topic with streams", () => {
    fact("keeps a key in one stream, and in order", "streams", async (stage) => {
      const topic = await dividedTopic(stage, 4);
      await stage.send(...keyedMessages(topic, 80, 20));
      const deliveries = await topic.consume().take(80);
      for (const key of Array.from({ length: 20 }, (_, n) => `k${n}`)) {
        const ofKey = deliveries.filter(({ message }) => message.key === key);
        expect(ofKey.map(idOf)).toEqual([0, 1, 2, 3].map((n) => `${key}-${n}`));
        expect(new Set(ofKey.map(({ stream }) => stream)).size).toBe(1);
      }
      const streams = new Set(deliveries.map(({ stream }) => stream));
      expect(streams.has(undefined)).toBe(false);
      expect(streams.size).toBeGreaterThan(1);
    });

    fact("does not hold up a stream because another one has no room", "streams", async (stage) => {
      const topic = await dividedTopic(stage, 4);
      await stage.send(...keyedMessages(topic, 60, 20));
      const streams = await topic.streamsById(60);
      const room = gate();
      let full: string | undefined;
      const consumer = topic.consume({
        async accept({ stream }) {
          full ??= stream;
          if (stream === full) await room.opened;
        },
      });
      await consumer.next();
      const others = [...streams.values()].filter((stream) => stream !== full).length;
      expect(others).toBeLessThan(60);
      await expect.poll(() => consumer.deliveries.length, patience).toBe(others + 1);
      room.open();
      await expect.poll(() => new Set(consumer.deliveries.map(idOf)).size, patience).toBe(60);
    });

    fact("has at most its prefetch of unsettled deliveries of a stream", ["streams", "prefetch"], async (stage) => {
      const topic = await dividedTopic(stage, 3);
      await stage.send(...keyedMessages(topic, 60, 20));
      const streams = [...(await topic.streamsById(60)).values()];
      const consumer = topic.consume({ prefetch: 2 });
      const count = (stream: string | undefined) => consumer.deliveries.filter((each) => each.stream === stream).length;
      await expect.poll(() => consumer.deliveries.length, patience).toBe(2 * new Set(streams).size);
      expect(new Set(streams.map(count))).toEqual(new Set([2]));
      const [first] = consumer.deliveries;
      await first?.ack();
      await expect.poll(() => count(first?.stream), patience).toBe(3);
      expect(consumer.deliveries).toHaveLength(2 * new Set(streams).size + 1);
    });

    fact(
      "commits no offset before the earlier ones are done, in whatever order that happens",
      "streams",
      async (stage) => {
        let run = 0;
        const finished = fc.uniqueArray(fc.nat({ max: 11 }), { maxLength: 11 });
        await fc.assert(
          fc.asyncProperty(finished, async (order) => {
            const topic = await dividedTopic(stage, 1, `run-${run++}`);
            await stage.send(...keyedMessages(topic, 12, 3));
            const first = topic.consume();
            const deliveries = await first.take(12);
            for (const place of order) await deliveries[place]?.ack();
            await first.crash();
            const open = deliveries.findIndex((_, place) => !order.includes(place));
            const second = topic.consume();
            const again = await second.take(12 - open);
            expect(again.map(idOf)).toEqual(deliveries.slice(open).map(idOf));
            expect(again.every(({ redelivered }) => redelivered === true)).toBe(true);
            await second.abandon();
          }),
          { numRuns: 25 },
        );
      },
    );
  });

  describe("members of a group", () => {
    fact("share the streams: each has one member", "streams", async (stage) => {
      const topic = await dividedTopic(stage, 4);
      const members = [topic.consume(), topic.consume()];
      // A member that has just joined may still wait for its streams.
      const bothHave = async () => {
        await stage.send(...keyedMessages(topic, 20, 20));
        return members.every(({ deliveries }) => deliveries.length > 0);
      };
      await expect.poll(bothHave, patience).toBe(true);
      const [a = [], b = []] = members.map(({ deliveries }) =>
        deliveries.filter((each) => !isTakenBack(each)).map(({ stream }) => stream),
      );
      expect(a.filter((stream) => b.includes(stream))).toEqual([]);
    });

    fact(
      "get streams of others when they join, whose unsettled deliveries are revoked",
      ["streams", "revokes"],
      async (stage) => {
        const topic = await dividedTopic(stage, 4);
        await stage.send(...keyedMessages(topic, 40, 20));
        const first = topic.consume();
        const had = await first.take(40);
        const second = topic.consume();
        await second.next();
        const moved = () => had.filter(isTakenBack).map(idOf).sort();
        const seen = () => second.deliveries.map(idOf).sort();
        await expect.poll(() => seen().join() === moved().join(), patience).toBe(true);
        expect(moved().length).toBeLessThan(40);
        expect(second.deliveries.every(({ redelivered }) => redelivered === true)).toBe(true);
        // Acknowledgements of revoked deliveries come too late; the others count.
        for (const delivery of had) await delivery.ack().catch(() => {});
        await second.crash();
        const again = await first.take(moved().length);
        expect(again.map(idOf).sort()).toEqual(moved());
        await expectNothingMore(stage, first, lastOfEachStream(topic));
      },
    );

    fact(
      "that leave are continued where they stopped: nothing that is done is redelivered",
      "streams",
      async (stage) => {
        const topic = await dividedTopic(stage, 2);
        await stage.send(...keyedMessages(topic, 40, 20));
        const first = topic.consume();
        const had = await first.take(40);
        const streams = [...new Set(had.map(({ stream }) => stream))];
        const halves = streams.map((stream) => {
          const own = had.filter((delivery) => delivery.stream === stream);
          return { done: own.slice(0, own.length / 2), left: own.slice(own.length / 2) };
        });
        first.abort();
        for (const { left } of halves) for (const delivery of left) await delivery.release();
        for (const { done } of halves) for (const delivery of done.reverse()) await delivery.ack();
        await first.running;
        const left = halves.flatMap((half) => half.left.map(idOf));
        const second = topic.consume();
        expect((await second.take(left.length)).map(idOf).sort()).toEqual(left.sort());
        await expectNothingMore(stage, second, lastOfEachStream(topic));
      },
    );
  });
}
