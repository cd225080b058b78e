import { describeOnEach } from "@postbox/testkit/servers";
import { createMessaging, silent } from "postbox";
import { memoryStore } from "postbox/memory";
import { expect, it, onTestFinished, vi } from "vitest";
import { rabbitmqStages } from "../../../fixtures/rabbitmq-stage.js";
import { rabbitmqReceiver, rabbitmqSender } from "./index.js";

/** What the guide to RabbitMQ says under "Change a queue". */
describeOnEach("rabbitmq", ({ url }) => {
  const { stage } = rabbitmqStages(url);

  it("a consumer that moves to a new queue handles everything once and in order", async () => {
    const { event, topic, queue, channel, publish } = await stage();
    const next = `${queue}.2`;
    onTestFinished(async () => {
      for (const name of [queue, next]) {
        for (const end of ["", ".parked"]) await channel.deleteQueue(name + end);
        for (let ms = 64; ms <= 65_536; ms *= 2) await channel.deleteQueue(`${name}.wait.${ms}`);
      }
    });
    const store = memoryStore();
    const handled: string[] = [];
    const ids = Array.from({ length: 30 }, (_, index) => `m${index}`);
    const serviceOn = (name: string, singleActiveConsumer: boolean) => {
      const messaging = createMessaging({
        service: "shop",
        store,
        inbox: "durable",
        sender: rabbitmqSender({ url, telemetry: silent }),
        receiver: rabbitmqReceiver({ url, queue: name, singleActiveConsumer, telemetry: silent }),
        telemetry: silent,
      });
      messaging.consumer("ledger").on(event, async (_, { message }) => {
        handled.push(message.id);
      });
      onTestFinished(() => messaging.close());
      return messaging;
    };
    const old = serviceOn(queue, false);
    await old.start();
    for (const id of ids.slice(0, 10)) publish(id, { headers: headers(id) });

    const moved = serviceOn(next, true);
    await moved.prepare();
    for (const id of ids.slice(10, 20)) publish(id, { headers: headers(id) });
    await channel.unbindQueue(queue, topic, "Happened");
    for (const id of ids.slice(20)) publish(id, { headers: headers(id) });
    await vi.waitFor(() => expect(handled).toHaveLength(20), { timeout: 20_000 });
    expect(await channel.checkQueue(queue)).toMatchObject({ messageCount: 0 });
    await old.close();

    await moved.start();
    await vi.waitFor(() => expect(handled.length).toBeGreaterThanOrEqual(30), { timeout: 20_000 });
    await moved.close();
    expect(handled).toEqual(ids);

    function headers(id: string) {
      return {
        "cloudEvents:specversion": "1.0",
        "cloudEvents:id": id,
        "cloudEvents:source": "/",
        "cloudEvents:type": event.type,
        "cloudEvents:partitionkey": "one",
      };
    }
  });
});
