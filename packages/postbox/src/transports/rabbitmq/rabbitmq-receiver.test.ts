import { describeOnEach } from "@postbox/testkit/servers";
import type { Channel } from "amqplib";
import { createRouter, inbox, transaction } from "postbox";
import { memoryStore } from "postbox/memory";
import { expect, it, onTestFinished, vi } from "vitest";
import { eventHeaders, rabbitmqStages } from "../../../fixtures/rabbitmq-stage.js";
import type { TelemetryEvent } from "../../telemetry/events.js";
import type { Delivery } from "../../transport.js";
import { rabbitmqParkingLot, rabbitmqReceiver } from "./index.js";

/**
 * What is specific to a RabbitMQ receiver: its queues, what other clients publish to them, and the messages it sets
 * aside.
 */
describeOnEach("rabbitmq", ({ url }) => {
  const { stage, receiving, way } = rabbitmqStages(url);

  it("makes its queue anew when somebody deletes it, and binds it", async () => {
    const handled = new Set<string>();
    // The retry opens a second connection.
    const handle = async ({ message: { id }, attempt, ack, retry }: Delivery) => {
      if (attempt === 1) return retry(0);
      await ack();
      handled.add(id);
    };
    const { channel, queue, publish, failures } = await receiving(
      {},
      { take: (delivery) => handle(delivery).catch(() => {}) },
    );
    const untilHandled = (id: string) =>
      expect
        .poll(() => {
          publish(id);
          return handled.has(id);
        })
        .toBe(true);
    await untilHandled("first");
    const sockets = openSockets();
    for (let times = 1; times <= 3; times++) {
      await channel.deleteQueue(queue);
      await expect.poll(() => failures.length).toBeGreaterThanOrEqual(times);
      // The queue is bound a moment after it is declared.
      await untilHandled(`again-${times}`);
    }
    // A connection that outlives its queue must be closed.
    await expect.poll(openSockets).toBeLessThanOrEqual(sockets);
  });

  it("parks what is no event, as it came, and goes on", async () => {
    const { channel, queue, topic, publish, next } = await receiving();
    channel.publish(topic, "Happened", Buffer.from("hello"), { headers: { a: "b" } });
    publish("m1");
    expect((await next()).message.id).toBe("m1");
    const parked = await channel.get(`${queue}.parked`, { noAck: true });
    expect(parked).toMatchObject({
      content: Buffer.from("hello"),
      properties: { headers: { a: "b", "postbox-topic": topic } },
    });
    if (parked === false) throw new Error("nothing was parked");
    expect(String(parked.properties.headers?.["postbox-reason"])).toContain("not a CloudEvents 1.0 event");
  });

  it("says when it parks what nobody can read, and takes headers of others for what they are", async () => {
    const parked: TelemetryEvent[] = [];
    const { channel, topic, queue, publish, next } = await receiving({
      telemetry: (event) => event.name === "delivery.parked" && parked.push(event),
    });
    // The largest headers that other clients can write, which leave no room for a reason.
    const headers = Object.fromEntries(Array.from({ length: 63 }, (_, index) => [`h${index}`, "x".repeat(1000)]));
    channel.publish(topic, "Happened", Buffer.from("{}"), { headers: { ...headers, more: "y".repeat(1900) } });
    await expect.poll(() => parked).toMatchObject([{ consumer: "test", id: "(without an id)" }]);
    expect(await rabbitmqParkingLot({ url, queue }).count()).toBe(1);

    publish("m1", {
      headers: { ...eventHeaders("m1", `${topic}.Happened`), "postbox-attempt": "many", CC: [`${queue}.parked`] },
    });
    const delivery = await next();
    expect(delivery.attempt).toBe(1);
    await delivery.retry(0);
    expect((await next()).attempt).toBe(2);
    // The retry ignored the CC header: only the unreadable message is parked.
    expect(await rabbitmqParkingLot({ url, queue }).count()).toBe(1);
  });

  it.each(["quorum", "classic"] as const)(
    "trusts no header that a publisher may have written, %s",
    async (queueType) => {
      const { publish, next, queue, channel, topic, event } = await receiving({ queueType }, { queueType });
      const hostile: Record<string, unknown>[] = [
        { "x-delivery-count": "abc", "x-acquired-count": "7" },
        { "x-delivery-count": -5, "postbox-attempt": -5 },
        { "x-delivery-count": 2 ** 40, "postbox-attempt": 2 ** 60 },
        { "x-delivery-count": 1.5, "postbox-attempt": 1.5, "x-acquired-count": 3 },
        { "x-delivery-count": { a: 1 }, "postbox-attempt": ["2"], "postbox-topic": { a: 1 } },
        // The client can decode this header, but not encode it again.
        { large: { "!": "timestamp", value: 2n ** 64n - 1n } },
      ];
      for (const [index, headers] of hostile.entries()) {
        publish(`m${index}`, { headers: { ...eventHeaders(`m${index}`, event.type), ...headers } });
        const first = await next();
        const seen = { attempt: first.attempt, id: first.message.id, topic: first.message.topic };
        expect(seen).toEqual({ attempt: 1, id: `m${index}`, topic });
        await first.retry(0);
        const second = await next();
        expect([second.attempt, second.message.id]).toEqual([2, `m${index}`]);
        expect(second.message.headers).toEqual(first.message.headers);
        expect(Object.keys(first.message.headers)).not.toContain("x-acquired-count");
        await second.park(new Error("enough"));
        const parked = await channel.get(`${queue}.parked`, { noAck: true });
        expect(parked).toMatchObject({ properties: { headers: { "postbox-attempt": 2, "postbox-reason": "enough" } } });
        if (parked === false) throw new Error("nothing was parked");
        expect(Object.keys(parked.properties.headers ?? {})).not.toContain("x-acquired-count");
      }
    },
  );

  it("ends at once with what its route throws, and does not take it for a lost connection", async () => {
    const { running, failures } = await receiving({
      route: () => {
        throw new Error("no tenant");
      },
    });
    await expect(running).rejects.toMatchObject({ code: "option-invalid", path: "route" });
    await expect(running).rejects.toThrow("no tenant");
    expect(failures).toEqual([]);
  });

  it("waits longer and longer before it begins anew, where it cannot stay", async () => {
    const pauses: number[] = [];
    const { stop } = await receiving(
      {
        topology: "none",
        bindings: false,
        backoff: (failures) => failures * 10,
        telemetry: (event) => {
          if (event.name === "transport.lost") pauses.push(event.retryInMs ?? 0);
        },
      },
      { prepare: async (own, name) => void (await own.deleteQueue(name)) },
    );
    await expect.poll(() => pauses.slice(0, 4)).toEqual([10, 20, 30, 40]);
    stop.abort();
  });

  it.each([".parked", ".wait.64"])("makes <queue>%s anew when somebody has deleted it", async (which) => {
    const { channel, queue, publish, next } = await receiving();
    publish("m1");
    const first = await next();
    // The first retry declares the wait queue, and the receiver remembers that.
    await first.retry(0);
    const second = await next();
    await channel.deleteQueue(queue + which);
    if (which === ".parked") await second.park(new Error("never"));
    else await second.retry(0);
    if (which === ".parked") expect(await rabbitmqParkingLot({ url, queue }).count()).toBe(1);
    else expect((await next()).attempt).toBe(3);
  });

  it("does not try at once again what it cannot put aside", async () => {
    const { publish, next } = await receiving({ topology: "check" }, { prepare: noParking });
    publish("m1");
    const first = await next();
    const refusedAt = performance.now();
    await expect(first.park(new Error("never"))).rejects.toMatchObject({ code: "publish-failed" });
    const again = await next();
    // A one-second pause; timers may fire slightly early by the clock that measures them.
    expect(performance.now() - refusedAt).toBeGreaterThan(900);
    expect(again).toMatchObject({ attempt: 1, redelivered: true });
    await again.ack();
  });

  it("survives that its channel has ended when it gives back what it could not put aside", async () => {
    const through = await way();
    const { publish, next, channel } = await receiving({ url: through.url, topology: "check" }, { prepare: noParking });
    publish("m1");
    const first = await next();
    // The client behaves like this when it knows that the channel has ended and has not emitted the event yet.
    const nack = vi.spyOn(Object.getPrototypeOf(channel), "nack").mockImplementationOnce(() => {
      throw new Error("Channel closed");
    });
    const uncaught = vi.fn();
    process.on("uncaughtException", uncaught);
    onTestFinished(() => {
      nack.mockRestore();
      process.off("uncaughtException", uncaught);
    });
    await expect(first.park(new Error("never"))).rejects.toMatchObject({ code: "publish-failed" });
    await expect.poll(() => nack.mock.results).toMatchObject([{ type: "throw" }]);
    through.cut();
    through.mend();
    const again = await next();
    expect([again.message.id, uncaught.mock.calls]).toEqual(["m1", []]);
    await again.ack();
  });

  it("says how long its messages may come again, where it knows, and an inbox must remember as long", async () => {
    const told = rabbitmqReceiver({ url, redeliveryWindowMs: 2000 });
    expect([told.redeliveryWindowMs, rabbitmqReceiver({ url }).redeliveryWindowMs]).toEqual([2000, undefined]);
    expect(() => rabbitmqReceiver({ url, redeliveryWindowMs: 0 })).toThrow("[option-invalid]");
    const [store, { event }] = [memoryStore(), await stage()];
    const remembering = (retentionMs: number) =>
      createRouter("test")
        .use(transaction(store))
        .use(inbox(store, { retentionMs }))
        .on(event, () => {})
        .run(told, AbortSignal.abort());
    await expect(remembering(1999)).rejects.toThrow("raise retentionMs to at least that");
    await remembering(2000);
  });

  it("gives back what its consumer does not take", async () => {
    let refusals = 0;
    const { publish, next, queue } = await receiving(
      {},
      { take: () => (refusals++ < 2 ? Promise.reject(new Error("not now")) : Promise.resolve()) },
    );
    publish("m1");
    for (let times = 0; times < 2; times++) await next();
    const taken = await next();
    expect(taken).toMatchObject({ attempt: 1, redelivered: true });
    await taken.ack();
    expect(await rabbitmqParkingLot({ url, queue }).count()).toBe(0);
  });

  it("does not let what brokers write grow, however often a message waits", async () => {
    const { publish, next } = await receiving();
    publish("m1");
    for (let attempt = 1; attempt <= 5; attempt++) {
      const delivery = await next();
      expect([delivery.attempt, delivery.message.headers, delivery.message.extensions]).toEqual([attempt, {}, {}]);
      if (attempt < 5) await delivery.retry(0);
      else await delivery.ack();
    }
  });

  it("reads what older publishers write: extensions without a prefix, the type as a property", async () => {
    const { publish, next, event } = await receiving({ unprefixed: true });
    publish("m1", {
      type: event.type,
      headers: {
        "cloudEvents:specversion": "1.0",
        "cloudEvents:id": "m1",
        "cloudEvents:source": "/",
        correlationid: "c1",
        "x-death": [],
      },
    });
    const { message } = await next();
    expect(message).toMatchObject({ type: event.type, extensions: { correlationid: "c1" }, headers: {} });
  });
});

/** Creates a parking queue that rejects everything. */
async function noParking(channel: Channel, queue: string): Promise<void> {
  const none = { "x-queue-type": "classic", "x-max-length": 0, "x-overflow": "reject-publish" };
  await channel.assertQueue(`${queue}.parked`, { arguments: none });
}

function openSockets(): number {
  return process.getActiveResourcesInfo().filter((name) => name.startsWith("TCPSocket")).length;
}
