import { describeOnEach } from "@postbox/testkit/servers";
import { expect, it } from "vitest";
import { type RabbitmqStage, rabbitmqStages } from "../../../fixtures/rabbitmq-stage.js";
import { rabbitmqParkingLot } from "./index.js";

describeOnEach("rabbitmq", ({ url }) => {
  const { stage, receiving } = rabbitmqStages(url);

  /** A queue with `count` messages that its consumers have parked. */
  async function parked(count: number): Promise<RabbitmqStage> {
    const made = await stage();
    const { queue, channel } = made;
    await channel.assertQueue(`${queue}.parked`, { arguments: { "x-queue-type": "quorum" } });
    const headers = { "postbox-attempt": 7, "postbox-reason": "poison", theirs: "kept" };
    for (let n = 0; n < count; n++) channel.sendToQueue(`${queue}.parked`, Buffer.from(`${n}`), { headers });
    await expect.poll(async () => (await channel.checkQueue(`${queue}.parked`)).messageCount).toBe(count);
    return made;
  }

  it("gets back what was parked, as if it had never been tried, and no more than was asked for", async () => {
    const { publish, next, queue, deliveries } = await receiving();
    for (const id of ["m1", "m2", "m3"]) {
      publish(id);
      await (await next()).retry(0);
      await (await next()).park(new Error("no such order"));
    }
    const lot = rabbitmqParkingLot({ url, queue });
    expect(await lot.count()).toBe(3);
    expect(await lot.replay({ limit: 2 })).toBe(2);
    const again = [await next(), await next()];
    expect(again.map(({ message, attempt }) => [message.id, message.headers, attempt])).toEqual([
      ["m1", {}, 1],
      ["m2", {}, 1],
    ]);
    // m1 fails again and is parked again. One replay returns each message once, whatever its limit.
    await again[0]?.park(new Error("still no such order"));
    expect(await lot.replay({ limit: 100 })).toBe(2);
    expect([(await next()).message.id, (await next()).message.id].sort()).toEqual(["m1", "m3"]);
    expect([await lot.count(), deliveries.length]).toEqual([0, 0]);
    await expect(lot.replay({ limit: 0 })).rejects.toMatchObject({ code: "option-invalid" });
  });

  it("moves as many as were asked for, in their order, as if they had never been tried", async () => {
    const { queue, channel } = await parked(250);
    const lot = rabbitmqParkingLot({ url, queue });
    expect(await lot.replay({ limit: 230 })).toBe(230);
    expect(await lot.count()).toBe(20);
    const back: { text: string; headers: object }[] = [];
    for (;;) {
      const raw = await channel.get(queue, { noAck: true });
      if (raw === false) break;
      back.push({ text: raw.content.toString(), headers: raw.properties.headers ?? {} });
    }
    expect(back.map(({ text }) => text)).toEqual(Array.from({ length: 230 }, (_, n) => `${n}`));
    for (const { headers } of back) {
      expect(headers).toHaveProperty("theirs", "kept");
      expect(headers).not.toHaveProperty("postbox-attempt");
      expect(headers).not.toHaveProperty("postbox-reason");
    }
    expect(await lot.replay({ limit: 230 })).toBe(20);
    expect(await lot.replay({ limit: 230 })).toBe(0);
  });

  it("keeps them when there is no queue to go back to, and says so", async () => {
    const { queue, channel } = await parked(150);
    await channel.deleteQueue(queue);
    const lot = rabbitmqParkingLot({ url, queue });
    await expect(lot.replay({ limit: 150 })).rejects.toMatchObject({ code: "unroutable" });
    await expect.poll(() => lot.count()).toBe(150);
  });
});
