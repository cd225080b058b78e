import { type AddressInfo, createServer, connect as dial, type Socket } from "node:net";
import { gate, settlesWithin } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { createOutbox, createRelay, type Message, type TelemetryEvent } from "postbox";
import { memoryStore } from "postbox/memory";
import { describe, expect, it, onTestFinished } from "vitest";
import { rabbitmqStages, sending } from "../../../fixtures/rabbitmq-stage.js";
import type { Delivery, Outcome, Sender } from "../../transport.js";
import { rabbitmqReceiver, rabbitmqSender } from "./index.js";

type Told = Extract<TelemetryEvent, { name: `transport.${string}` }>;

describeOnEach("rabbitmq", ({ url }) => {
  const { stage, way } = rabbitmqStages(url);

  /** Records the transport's telemetry; `until` waits for the named events. */
  function listening() {
    const told: Told[] = [];
    let heard = gate();
    const telemetry = (event: TelemetryEvent) => {
      if (!event.name.startsWith("transport.")) return;
      told.push(event as Told);
      heard.open();
    };
    const until = async (...names: readonly string[]): Promise<readonly Told[]> => {
      for (;;) {
        if (names.every((name, index) => told[index]?.name === name)) return told;
        heard = gate();
        expect(await settlesWithin(heard.opened, 30_000), `heard ${told.map(({ name }) => name)}`).toBe(true);
      }
    };
    return { told, telemetry, until };
  }

  const unaborted = new AbortController().signal;
  const send = async (sender: Sender, messages: readonly Message[]) => {
    const { outcomes, sent } = sending(sender, messages);
    await sent;
    return outcomes;
  };

  describe("a sender", () => {
    it("tells when it is connected and when not, and its health says the same", async () => {
      const { message } = await stage();
      const through = await way();
      const { told, telemetry, until } = listening();
      const sender = rabbitmqSender({ url: through.url, telemetry });
      onTestFinished(() => sender.close());
      expect(sender.health()).toEqual({ status: "idle", since: expect.any(Date) });
      await send(sender, [message("m1")]);
      expect(told).toEqual([
        {
          name: "transport.connected",
          transport: "rabbitmq",
          end: "sender",
          whose: "postbox",
          place: expect.stringMatching(/^amqp:/),
        },
      ]);
      expect(sender.health()).toEqual({ status: "connected", since: expect.any(Date) });
      through.cut();
      await until("transport.connected", "transport.lost");
      const { status, since, lastFailure } = sender.health();
      expect([status, lastFailure]).toEqual([
        "down",
        { code: "transport-down", text: expect.stringContaining("was lost"), at: since },
      ]);
      await expect(send(sender, [message("m2")])).rejects.toMatchObject({ code: "transport-down" });
      expect(sender.health()).toMatchObject({ status: "down", since });
      through.mend();
      await send(sender, [message("m3")]);
      expect(told.map(({ name }) => name)).toEqual([
        "transport.connected",
        "transport.lost",
        "transport.lost",
        "transport.connected",
      ]);
      expect(sender.health()).toMatchObject({ status: "connected", lastFailure: { code: "transport-down" } });
    });

    it("that is closed has lost nothing", async () => {
      const { message } = await stage();
      const { told, telemetry } = listening();
      const sender = rabbitmqSender({ url, telemetry });
      await send(sender, [message("m1")]);
      await sender.close();
      expect(told.map(({ name }) => name)).toEqual(["transport.connected"]);
      expect(sender.health()).toEqual({ status: "idle", since: expect.any(Date) });
    });

    it("that is closed in the middle of a batch ends its connection after that", async () => {
      const { message } = await stage();
      const sender = rabbitmqSender({ url });
      await send(sender, [message("m0")]);
      const outcomes: Outcome[] = [];
      let closed: Promise<void> | undefined;
      const messages = Array.from({ length: 20_000 }, (_, index) => message(`m${index}`));
      const settled = (_: number, outcome: Outcome) => {
        outcomes.push(outcome);
        closed ??= sender.close();
      };
      await sender.send(messages, settled, unaborted);
      await closed;
      expect(outcomes.filter(({ status }) => status === "sent")).toHaveLength(messages.length);
      expect(sender.health().status).toBe("idle");
    });

    it("tells that the broker takes nothing, and sends when it does again", async () => {
      const { message } = await stage();
      const broker = await blockable(url);
      const { telemetry, until } = listening();
      const sender = rabbitmqSender({ url: broker.url, telemetry });
      onTestFinished(() => sender.close());
      await send(sender, [message("m1")]);
      broker.block("low on disk");
      const [, blocked] = await until("transport.connected", "transport.blocked");
      expect(blocked).toMatchObject({ reason: "low on disk" });
      expect(sender.health().status).toBe("blocked");
      await expect(send(sender, [message("m2")])).rejects.toMatchObject({
        during: "connect",
        message: expect.stringContaining("low on disk"),
      });
      broker.unblock();
      await until("transport.connected", "transport.blocked", "transport.unblocked");
      expect(sender.health().status).toBe("connected");
      expect(await send(sender, [message("m2")])).toEqual([{ status: "sent" }]);
    });

    it("that is refused after a first success retries with growing pauses, without counting attempts", async () => {
      const { event } = await stage();
      const through = await way();
      const [right, wrong] = [new URL(url), { username: "nobody", password: "very-secret" }];
      let asked = 0;
      const { told, telemetry, until } = listening();
      const sender = rabbitmqSender({
        url: through.url,
        telemetry,
        credentials: () =>
          ++asked > 1 && asked < 5
            ? wrong
            : { username: right.username || "guest", password: right.password || "guest" },
      });
      const store = memoryStore();
      const pauses: number[] = [];
      const sent = gate();
      let attempt: number | undefined;
      const relay = createRelay(store, sender, {
        backoff: (failures) => 20 * failures,
        telemetry(happened) {
          if (happened.name === "breaker.opened") pauses.push(happened.retryInMs);
          if (happened.name !== "message.sent") return;
          attempt = happened.attempt;
          sent.open();
        },
      });
      onTestFinished(() => relay.stop());
      await relay.start();
      through.reset();
      await until("transport.connected", "transport.lost");
      await store.transaction((tx) => createOutbox(store, { source: "/" }).in(tx).publish(event, {}));
      expect(await settlesWithin(sent.opened, 30_000)).toBe(true);
      expect({ asked, pauses, attempt }).toEqual({ asked: 5, pauses: [20, 40, 60], attempt: 1 });
      expect(told.map((each) => [each.name, "error" in each && each.error.code])).toEqual([
        ["transport.connected", false],
        ["transport.lost", "transport-down"],
        ...Array(3).fill(["transport.lost", "transport-refused"]),
        ["transport.connected", false],
      ]);
      expect(JSON.stringify([told, sender.health()])).not.toContain("very-secret");
    });
  });

  describe("a receiver", () => {
    it("tells of a loss at once, though it waits for what it has handed over", async () => {
      const { event, queue, message } = await stage();
      const sender = rabbitmqSender({ url });
      onTestFinished(() => sender.close());
      await send(sender, [message("m1")]);
      const through = await way();
      const { telemetry, until } = listening();
      const receiver = rabbitmqReceiver({ url: through.url, queue, telemetry, backoff: () => 20 });
      expect(receiver.health().status).toBe("idle");
      const stop = new AbortController();
      const deliveries: Delivery[] = [];
      let arrived = gate();
      const deliver = async (delivery: Delivery) => {
        deliveries.push(delivery);
        arrived.open();
      };
      const running = receiver.receive({ consumer: "test", events: [event], deliver }, stop.signal);
      onTestFinished(async () => {
        stop.abort();
        await settlesWithin(running, 5000);
      });
      await arrived.opened;
      expect(receiver.health().status).toBe("connected");
      arrived = gate();
      through.cut();
      const [, lost] = await until("transport.connected", "transport.lost");
      expect(lost).toMatchObject({ end: "receiver", retryInMs: 20, error: { code: "transport-down" } });
      expect(receiver.health()).toMatchObject({ status: "down", lastFailure: { code: "transport-down" } });
      through.mend();
      await deliveries[0]?.ack().catch(() => {});
      await arrived.opened;
      await deliveries[1]?.ack();
      await until("transport.connected", "transport.lost", "transport.connected");
      stop.abort();
      await running;
      expect(receiver.health().status).toBe("idle");
    });
  });
});

/**
 * A proxy that can send connection.blocked in the broker's name. A real alarm would affect every client of the broker.
 */
async function blockable(url: string) {
  const target = new URL(url);
  const clients = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = dial(Number(target.port || 5672), target.hostname);
    clients.add(client);
    client.pipe(upstream).pipe(client);
    for (const each of [client, upstream]) each.on("error", () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const client of clients) client.destroy();
    server.close();
  });
  const through = new URL(url);
  through.hostname = "127.0.0.1";
  through.port = String((server.address() as AddressInfo).port);
  /** Sends a method of the class `connection` on channel 0. */
  const tell = (method: number, args: Buffer) => {
    const head = Buffer.from([1, 0, 0, 0, 0, 0, 4 + args.length, 0, 10, 0, method]);
    for (const client of clients) client.write(Buffer.concat([head, args, Buffer.from([0xce])]));
  };
  return {
    url: through.href,
    block: (reason: string) => tell(60, Buffer.from([reason.length, ...Buffer.from(reason)])),
    unblock: () => tell(61, Buffer.alloc(0)),
  };
}
