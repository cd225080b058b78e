import { gate } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { connect } from "amqplib";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { rabbitmqStages } from "../../../fixtures/rabbitmq-stage.js";
import type { Delivery } from "../../transport.js";
import { rabbitmqReceiver } from "./index.js";

describeOnEach("rabbitmq", ({ url }) => {
  const { stage } = rabbitmqStages(url);
  let admin: Awaited<ReturnType<typeof connect>>;
  beforeAll(async () => {
    admin = await connect(url);
  });
  afterAll(() => admin.close());

  it.each(["quorum", "classic"] as const)(
    "a single active consumer that stops gives its turn away with all that it has, in its order (%s)",
    async (queueType) => {
      const { event, publish } = await stage();
      const queue = `single.${crypto.randomUUID()}`;
      onTestFinished(async () => {
        const channel = await admin.createChannel();
        for (const name of [queue, `${queue}.parked`]) await channel.deleteQueue(name);
        await channel.close();
      });
      const start = (deliver: (delivery: Delivery) => Promise<void>) => {
        const ready = gate();
        const stopping = new AbortController();
        const receiver = rabbitmqReceiver({ url, queue, queueType, singleActiveConsumer: true, prefetch: 10 });
        const running = receiver.receive(
          { consumer: queue, events: [event], deliver, ready: ready.open },
          stopping.signal,
        );
        return { ready: ready.opened, running, stopping };
      };
      const held: Delivery[] = [];
      const ten = gate();
      const first = start(async (delivery) => {
        if (held.push(delivery) === 10) ten.open();
      });
      await first.ready;
      const ids = Array.from({ length: 30 }, (_, at) => `m${at}`);
      for (const id of ids) publish(id);
      await ten.opened;

      const handled: string[] = [];
      const all = gate();
      const second = start(async (delivery) => {
        handled.push(delivery.message.id);
        await delivery.ack();
        if (handled.length === ids.length - 3) all.open();
      });
      await second.ready;
      first.stopping.abort();
      // Enough time for the second consumer to receive what it should not.
      await new Promise((resolve) => setTimeout(resolve, 300));
      for (const delivery of held.slice(0, 3)) await delivery.ack();
      for (const delivery of held.slice(3)) await delivery.release();
      await first.running;
      await all.opened;
      second.stopping.abort();
      await second.running;
      expect(handled).toEqual(ids.slice(3));
    },
  );
});
