import { telemetryLog } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { createMessaging, createRelay, createRouter } from "postbox";
import { memoryStore } from "postbox/memory";
import { expect, it, onTestFinished } from "vitest";
import { rabbitmqStages } from "../../../fixtures/rabbitmq-stage.js";
import { rabbitmqReceiver, rabbitmqSender } from "./index.js";

describeOnEach("rabbitmq", ({ url }) => {
  const { stage, way } = rabbitmqStages(url);
  const strange = () => {
    const target = new URL(url);
    target.username = "guest";
    target.password = "wrong";
    return target.href;
  };

  it("neither a relay nor a router starts with a wrong password, and each says so once", async () => {
    const { event } = await stage();
    const log = telemetryLog();
    const { telemetry } = log;
    const relay = createRelay(memoryStore(), rabbitmqSender({ url: strange(), telemetry }), { telemetry });
    await expect(relay.start()).rejects.toMatchObject({ code: "transport-refused" });
    expect(log.of("relay.failed")).toMatchObject([{ retryInMs: Number.POSITIVE_INFINITY }]);
    await expect(relay.stop()).rejects.toMatchObject({ code: "transport-refused" });
    const router = createRouter("billing", { telemetry }).on(event, async () => {});
    await expect(router.start(rabbitmqReceiver({ url: strange(), telemetry }))).rejects.toMatchObject({
      code: "transport-refused",
    });
    expect(log.of("router.failed")).toHaveLength(1);
    await expect(router.stop()).rejects.toMatchObject({ code: "transport-refused" });
  });

  it("a URL with a user and no password is told as that", async () => {
    const target = new URL(url);
    target.username = "guest";
    target.password = "";
    const refused = rabbitmqReceiver({ url: target.href }).prepare?.({ consumer: "billing", events: [] });
    await expect(refused).rejects.toThrow(/names a user and no password, as in amqp:\/\/user:password@host/);
  });

  it("start resolves when the broker was reached, also where it was away at first", async () => {
    const { event, queue } = await stage();
    const through = await way();
    through.cut();
    const log = telemetryLog();
    const { telemetry } = log;
    const messaging = createMessaging({
      service: queue,
      store: memoryStore(),
      sender: rabbitmqSender({ url: through.url, telemetry }),
      receiver: rabbitmqReceiver({ url: through.url, telemetry, backoff: () => 10 }),
      outbox: true,
      telemetry,
      relayOptions: { backoff: () => 10 },
    });
    onTestFinished(() => messaging.close());
    messaging.consumer().on(event, async () => {});
    let runs = false;
    const starting = messaging.start().then(() => {
      runs = true;
    });
    await log.until((each) => each.name === "transport.lost" && each.end === "receiver");
    expect(runs).toBe(false);
    const { healthy, problems } = await messaging.health();
    expect(healthy).toBe(false);
    const text = expect.stringContaining(`receiver of ${queue}`);
    expect(problems).toContainEqual(
      expect.objectContaining({ code: "transport-down", end: "receiver", consumer: queue, text }),
    );
    through.mend();
    await starting;
    expect((await messaging.health()).healthy).toBe(true);
    const connected = log.of("transport.connected").map(({ end, whose }) => ({ end, whose }));
    expect(connected).toContainEqual({ end: "sender", whose: "postbox" });
    expect(connected).toContainEqual({ end: "receiver", whose: `postbox on ${queue}` });
  });
});
