import { PostboxError } from "postbox";
import type { Delivery } from "postbox/transport";
import { describe, expect } from "vitest";
import { comparable } from "../messages.js";
import { patienceMs } from "../patience.js";
import { expectNothingMore } from "./nothing-more.js";
import type { Stage, TransportFact } from "./transport-facts.js";

/** Timers may fire slightly early by the clock that measures them. */
const toleranceMs = 20;

/** What happens to a delivery once it is settled. */
export function settlementFacts(fact: TransportFact): void {
  const expectAttempt = ({ features }: Stage, delivery: Delivery, attempt: number) => {
    if (features.exactAttempts) expect(delivery.attempt).toBe(attempt);
    else expect(delivery.attempt).toBeGreaterThanOrEqual(Math.min(attempt, 2));
  };

  describe("a delivery", () => {
    fact("is gone once acknowledged, and redelivered if its consumer crashes before", async (stage) => {
      const { send, message, consume } = stage;
      await send(message("m1"), message("m2"), message("m3"));
      const first = consume();
      const [m1, , m3] = await first.take(3);
      await m1?.ack();
      await m3?.ack();
      await first.crash();
      const second = consume();
      // If acknowledgements are cumulative, those behind an open delivery have no effect.
      const expected = stage.features.settlesEach ? ["m2"] : ["m2", "m3"];
      const again = await second.take(expected.length);
      expect(again.map(({ message: { id }, redelivered }) => [id, redelivered])).toEqual(
        expected.map((id) => [id, true]),
      );
      await expectNothingMore(stage, second);
    });

    fact("spends no attempt when its consumers crash before they settle it", async ({ send, message, consume }) => {
      await send(message("m1"));
      for (let crashes = 0; crashes < 6; crashes++) {
        const consumer = consume();
        const { attempt, redelivered = false } = await consumer.next();
        expect([attempt, redelivered]).toEqual([1, crashes > 0]);
        await consumer.crash();
      }
    });

    fact(
      "is redelivered after the delay of its retry, not before, as one more attempt",
      "settlesEach",
      async (stage) => {
        const { send, message, consume } = stage;
        const sent = message("m1", { key: "k", headers: { a: "b" } });
        await send(sent);
        const consumer = consume();
        const first = await consumer.next();
        expect(first.attempt).toBe(1);
        const retriedAt = performance.now();
        await first.retry(300);
        const second = await consumer.next();
        expect(performance.now() - retriedAt).toBeGreaterThanOrEqual(300 - toleranceMs);
        expect(comparable(second.message)).toStrictEqual(comparable(sent));
        expectAttempt(stage, second, 2);
        await second.retry(0);
        expectAttempt(stage, await consumer.next(), 3);
      },
    );

    fact("spends no attempt on a retry that is not the message's fault", "settlesEach", async (stage) => {
      const { send, message, consume } = stage;
      await send(message("m1"));
      const consumer = consume();
      for (let retries = 0; retries < 3; retries++) {
        const delivery = await consumer.next();
        expect(delivery.attempt).toBe(1);
        await delivery.retry(0, new PostboxError("inbox-busy", "another process handles it"));
      }
      expect((await consumer.next()).attempt).toBe(1);
    });

    fact("does not hold up others while it waits for its retry", "settlesEach", async (stage) => {
      const { send, message, consume } = stage;
      await send(message("m1"));
      const consumer = consume({ prefetch: 1 });
      await (await consumer.next()).retry(60_000);
      await send(message("m2"));
      expect((await consumer.next()).message.id).toBe("m2");
    });

    fact("is redelivered when released", async ({ send, message, consume }) => {
      await send(message("m1"));
      const consumer = consume();
      await (await consumer.next()).release();
      expect((await consumer.next()).message.id).toBe("m1");
    });

    fact("is uncounted, and keeps its place, when released", "releaseUncounted", async ({ send, message, consume }) => {
      await send(message("m1"), message("m2"), message("m3"));
      const first = consume({ prefetch: 2 });
      const [m1, m2] = await first.take(2);
      first.abort();
      await m2?.release();
      await m1?.release();
      await first.running;
      const again = await consume().take(3);
      expect(again.map((delivery) => [delivery.message.id, delivery.attempt])).toEqual([
        ["m1", 1],
        ["m2", 1],
        ["m3", 1],
      ]);
    });

    fact("is stored with its reason when parked", "settlesEach", async (stage) => {
      const { harness, queue, send, message, consume } = stage;
      const poison = message("poison", { key: "k", headers: { a: "b" }, extensions: { correlationid: "c" } });
      await send(poison, message("m2"));
      const first = consume();
      const [delivery] = await first.take(2);
      await delivery?.park(new Error("no such order: ∞"));
      const parked = await harness.parked(queue);
      expect(parked.map((one) => comparable(one.message))).toStrictEqual([comparable(poison)]);
      expect(parked[0]?.reason).toContain("no such order: ∞");
      await first.crash();
      const second = consume();
      expect((await second.next()).message.id).toBe("m2");
      await expectNothingMore(stage, second);
    });

    fact("stays if it cannot be parked, and park rejects", "refusesParking", async (stage) => {
      const { harness, event, send, message, consume } = stage;
      const queue = `full-${stage.queue}`;
      await harness.bind(queue, [event], { parks: false });
      await send(message("m1"));
      const consumer = consume({ queue, parks: false });
      await expect((await consumer.next()).park(new Error("never"))).rejects.toBeInstanceOf(Error);
      const again = await consumer.next();
      expect([again.message.id, again.redelivered]).toEqual(["m1", true]);
      await again.ack();
    });

    const verbs: readonly [string, (delivery: Delivery) => Promise<void>][] = [
      ["ack", (delivery) => delivery.ack()],
      ["retry", (delivery) => delivery.retry(60_000)],
      ["park", (delivery) => delivery.park(new Error("never"))],
      ["release", (delivery) => delivery.release()],
    ];
    const always = new Set(["ack", "release"]);
    for (const [name, settle] of verbs) {
      const needs = always.has(name) ? [] : (["settlesEach"] as const);
      fact(`is settled once: after ${name} every other call is rejected`, needs, async (stage) => {
        const { features, send, message, consume } = stage;
        await send(message("m1"));
        const consumer = consume();
        const delivery = await consumer.next();
        await settle(delivery);
        for (const [other, again] of verbs)
          if (features.settlesEach || always.has(other))
            await expect(again(delivery)).rejects.toMatchObject({ code: "delivery-settled" });
      });
    }

    fact(
      "has a signal that is aborted when the broker has revoked it",
      "revokes",
      async ({ send, message, consume }) => {
        await send(message("m1"), message("m2"));
        const dead = consume();
        const [m1, m2] = await dead.take(2);
        await m1?.ack();
        expect(m2?.signal?.aborted).toBe(false);
        // One signal for all deliveries of a stream; otherwise each message would need a listener.
        expect(m1?.signal).toBe(m2?.signal);
        await dead.crash();
        await expect.poll(() => m2?.signal?.aborted, { timeout: patienceMs }).toBe(true);
      },
    );

    fact("cannot be settled by a crashed consumer, since another one has it", async (stage) => {
      const { harness, queue, send, message, consume } = stage;
      await send(message("m1"), message("m2"));
      const dead = consume();
      const [m1, m2] = await dead.take(2);
      await dead.crash();
      const heir = consume();
      const inherited = await heir.take(2);
      expect(inherited.map((delivery) => delivery.message.id).sort()).toEqual(["m1", "m2"]);
      await Promise.allSettled([m1?.ack(), m2?.park(new Error("too late"))]);
      expect(await harness.parked(queue)).toEqual([]);
      await heir.crash();
      const again = await consume().take(2);
      expect(again.map((delivery) => delivery.message.id).sort()).toEqual(["m1", "m2"]);
      for (const { attempt, redelivered } of again) expect([attempt, redelivered]).toEqual([1, true]);
    });
  });
}
