import type { Socket } from "node:net";
import { describeOnEach } from "@postbox/testkit/servers";
import { connect } from "amqplib";
import { expect, it } from "vitest";
import { eventHeaders, rabbitmqStages } from "../../../fixtures/rabbitmq-stage.js";
import type { TelemetryEvent } from "../../telemetry/events.js";
import { rabbitmqParkingLot } from "./index.js";

/** Messages that crash a consumer, including ones from other publishers. */
describeOnEach("rabbitmq", ({ url }) => {
  const { receiving, way } = rabbitmqStages(url);

  it.each(["quorum", "classic"] as const)(
    "parks headers that cannot be decoded, and goes on, %s",
    async (queueType) => {
      const told: TelemetryEvent[] = [];
      const { topic, event, queue, publish, next } = await receiving(
        { queueType, telemetry: (one) => void told.push(one) },
        { queueType },
      );
      publish("before");
      await publishNested(url, topic, eventHeaders("poison", event.type));
      publish("after");
      const ids = [(await next()).message.id, (await next()).message.id];
      expect(ids).toEqual(["before", "after"]);
      const lot = rabbitmqParkingLot({ url, queue });
      await expect.poll(() => lot.count()).toBe(1);
      expect(await lot.list({ limit: 10 })).toEqual([{ reason: expect.stringContaining("headers cannot be decoded") }]);
      // The undecodable message keeps its place, and others pass it.
      publish("parked");
      await (await next()).park(new Error("no such order"));
      expect(await lot.list({ limit: 10 })).toMatchObject([{}, { id: "parked", reason: "no such order" }]);
      expect(await lot.replay({ limit: 10 })).toBe(1);
      expect((await next()).message.id).toBe("parked");
      expect(await lot.count()).toBe(1);
      expect(told.filter(({ name }) => name === "transport.lost")).toEqual([]);
      expect(told.filter(({ name }) => name === "delivery.parked")).toHaveLength(1);
    },
  );

  it("has a message parked that kills every connection it is delivered on, and spares its neighbours", async () => {
    const through = await way();
    const ids = ["poison", ...Array.from({ length: 9 }, (_, index) => `m${index}`)];
    const handled = new Set<string>();
    const { publish, queue } = await receiving(
      { url: through.url, prefetch: 10 },
      {
        async prepare(_channel, _queue, stage) {
          for (const id of ids) stage.publish(id);
        },
        async take({ message: { id }, ack, release }) {
          if (id === "poison") {
            through.cut();
            through.mend();
            await release().catch(() => {});
            return;
          }
          await ack().then(
            () => handled.add(id),
            () => {},
          );
        },
      },
    );
    const lot = rabbitmqParkingLot({ url, queue });
    await expect.poll(() => handled.size).toBe(9);
    await expect.poll(() => lot.count()).toBe(1);
    expect(await lot.list({ limit: 10 })).toEqual([
      { id: "poison", reason: expect.stringContaining("x-delivery-limit") },
    ]);
    // A replayed message goes to the queue, not straight back to the parking lot.
    expect(await lot.replay({ limit: 1 })).toBe(1);
    publish("last");
    await expect.poll(() => handled.has("last")).toBe(true);
    await expect.poll(() => lot.count()).toBe(1);
  });
});

/** Publishes headers nested so deeply (40 KB) that a recursive decoder overflows its stack. */
async function publishNested(url: string, exchange: string, headers: Record<string, unknown>): Promise<void> {
  const depth = 7_000;
  // Written by hand, because the client's own encoder is recursive, too. Each level is an empty name, the type of a
  // table, and its length.
  const nested = Buffer.alloc(depth * 6);
  for (let level = 0; level < depth; level++) {
    nested.write("F", level * 6 + 1);
    nested.writeUInt32BE((depth - level - 1) * 6, level * 6 + 2);
  }
  const connection = await connect(url);
  const { stream } = connection.connection as unknown as { stream: Socket };
  const write = stream.write.bind(stream) as (chunk: Buffer) => boolean;
  // On the wire, bytes and a table differ only in their type.
  stream.write = ((chunk: Buffer) => {
    const at = chunk.indexOf("\x06nestedx");
    if (at >= 0) chunk.write("F", at + 7);
    return write(chunk);
  }) as Socket["write"];
  const channel = await connection.createConfirmChannel();
  channel.publish(exchange, "Happened", Buffer.from("{}"), { headers: { ...headers, nested } });
  await channel.waitForConfirms();
  await connection.close();
}
