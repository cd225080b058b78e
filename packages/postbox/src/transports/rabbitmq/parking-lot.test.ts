import { randomUUID } from "node:crypto";
import { describeOnEach } from "@postbox/testkit";
import { type Channel, type ChannelModel, connect } from "amqplib";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { rabbitmqParkingLot } from "./index.js";

describeOnEach("rabbitmq", ({ url }) => {
  let admin: ChannelModel;
  beforeAll(async () => {
    admin = await connect(url);
  });
  afterAll(() => admin.close());

  /** A queue, and as many messages that its consumers have parked. */
  async function parked(count: number): Promise<{ queue: string; channel: Channel }> {
    const queue = `parking-lot-${randomUUID()}`;
    const channel = await admin.createConfirmChannel();
    onTestFinished(async () => {
      for (const name of [queue, `${queue}.parked`]) await channel.deleteQueue(name);
      await channel.close();
    });
    for (const name of [queue, `${queue}.parked`]) {
      await channel.assertQueue(name, { arguments: { "x-queue-type": "quorum" } });
    }
    const headers = { "postbox-attempt": 7, "postbox-reason": "poison", theirs: "kept" };
    for (let n = 0; n < count; n++) channel.sendToQueue(`${queue}.parked`, Buffer.from(`${n}`), { headers });
    await channel.waitForConfirms();
    return { queue, channel };
  }

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
