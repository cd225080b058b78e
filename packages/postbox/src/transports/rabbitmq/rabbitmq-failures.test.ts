import { type AddressInfo, createServer, connect as dial, type Socket } from "node:net";
import { type Cuttable, cuttable, describeOnEach, gate, settlesWithin, testMessage } from "@postbox/testkit";
import { type Channel, type ChannelModel, connect } from "amqplib";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { ConfigError, TransportDownError } from "../../errors.js";
import { defineEvent } from "../../event/define-event.js";
import type { TelemetryEvent } from "../../telemetry/events.js";
import type { Delivery, Outcome } from "../../transport.js";
import { fromAmqp } from "./amqp-message.js";
import { type RabbitmqReceiverOptions, rabbitmqParkingLot, rabbitmqReceiver, rabbitmqSender } from "./index.js";

describeOnEach("rabbitmq", ({ url }) => {
  let admin: ChannelModel;
  beforeAll(async () => {
    admin = await connect(url);
  });
  afterAll(() => admin.close());

  /** An event, a queue and an exchange of its own, gone after the test. */
  async function stage() {
    const topic = `test.${crypto.randomUUID()}`;
    const event = defineEvent({
      type: `${topic}.Happened`,
      schema: { "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) } },
    });
    const queue = `queue.${topic}`;
    const channel = await admin.createChannel();
    onTestFinished(async () => {
      for (const name of ["", ".parked", ".dead", ".wait.64"]) await channel.deleteQueue(queue + name);
      for (const name of [topic, `${queue}.dlx`]) await channel.deleteExchange(name);
      await channel.close();
    });
    await channel.assertExchange(topic, "topic", { durable: true });
    await channel.assertQueue(queue, { arguments: { "x-queue-type": "quorum", "x-delivery-limit": 1_000_000 } });
    await channel.bindQueue(queue, topic, "Happened");
    const message = (id: string) => testMessage(id, { type: event.type, topic });
    return { topic, event, queue, channel, message };
  }

  async function way(): Promise<Cuttable> {
    const made = await cuttable(url);
    onTestFinished(() => made.close());
    return made;
  }

  const sending = (
    sender: ReturnType<typeof rabbitmqSender>,
    messages: ReturnType<typeof testMessage>[],
    signal = new AbortController().signal,
  ) => {
    const outcomes: (Outcome | undefined)[] = messages.map(() => undefined);
    const sent = sender.send(messages, (index, outcome) => (outcomes[index] = outcome), signal);
    return { outcomes, sent };
  };

  describe("a sender", () => {
    it("settles everything that is on its way when the connection dies", async () => {
      const { message } = await stage();
      const through = await way();
      const sender = rabbitmqSender({ url: through.url });
      onTestFinished(() => sender.close());
      await sending(sender, [message("m0")]).sent;
      through.swallow();
      const { outcomes, sent } = sending(
        sender,
        Array.from({ length: 500 }, (_, index) => message(`m${index}`)),
      );
      sent.catch(() => {});
      expect(await settlesWithin(sent, 200)).toBe(false);
      through.cut();
      await expect(sent).rejects.toMatchObject({ code: "transport-down", during: "send" });
      expect(outcomes.every((outcome) => outcome === undefined)).toBe(true);
    });

    it.each([
      ["before the first message", "connect"],
      ["after it", "send"],
    ])("gives up on a connection that says nothing %s, and takes another one", async (when, during) => {
      const { message } = await stage();
      const through = await way();
      const sender = rabbitmqSender({ url: through.url, publishTimeoutMs: 300 });
      onTestFinished(() => sender.close());
      await sender.connect?.(new AbortController().signal);
      if (during === "send") await sending(sender, [message("m0")]).sent;
      through.swallow();
      const lost = sending(sender, [message("m1")]).sent;
      await expect(lost, when).rejects.toBeInstanceOf(TransportDownError);
      await expect(lost).rejects.toMatchObject({ during });
      through.mend();
      const again = sending(sender, [message("m2")]);
      await again.sent;
      expect(again.outcomes).toEqual([{ status: "sent" }]);
    });

    it("tells which message is at fault when an exchange is deleted under it", async () => {
      const [one, two] = [await stage(), await stage()];
      const sender = rabbitmqSender({ url });
      onTestFinished(() => sender.close());
      await sending(sender, [one.message("m1"), two.message("m2")]).sent;
      await two.channel.deleteExchange(two.topic);
      const { outcomes, sent } = sending(sender, [one.message("m3"), two.message("m4"), one.message("m5")]);
      await sent;
      expect(outcomes[1]).toMatchObject({ status: "failed", error: { code: "unroutable" } });
      for (const outcome of [outcomes[0], outcomes[2]]) {
        if (outcome?.status !== "sent") expect(outcome).toMatchObject({ status: "failed", uncounted: true });
      }
      const again = sending(sender, [one.message("m3"), one.message("m5")]);
      await again.sent;
      expect(again.outcomes).toEqual([{ status: "sent" }, { status: "sent" }]);
    });

    it("does not take one for another of the same id", async () => {
      const { topic, message } = await stage();
      const sender = rabbitmqSender({ url });
      onTestFinished(() => sender.close());
      const unwanted = testMessage("m1", { type: `${topic}.Unwanted`, topic });
      for (let round = 0; round < 20; round++) {
        const { outcomes, sent } = sending(sender, [message("m1"), unwanted, message("m1")]);
        await sent;
        expect(outcomes.map((outcome) => outcome?.status)).toEqual(["sent", "failed", "sent"]);
      }
    });

    it("rejects what is larger than the broker takes, before it is sent", async () => {
      const { message } = await stage();
      const sender = rabbitmqSender({ url, maxMessageBytes: 1000 });
      onTestFinished(() => sender.close());
      const large = { ...message("m2"), data: new Uint8Array(1001) };
      const { outcomes, sent } = sending(sender, [message("m1"), large, message("m3")]);
      await sent;
      expect(outcomes.map((outcome) => outcome?.status)).toEqual(["sent", "rejected", "sent"]);
      expect(outcomes[1]).toMatchObject({ error: { code: "message-too-large" } });
    });

    it("makes the exchanges of events", async () => {
      const { event, topic, channel } = await stage();
      await channel.deleteExchange(topic);
      const sender = rabbitmqSender({ url });
      onTestFinished(() => sender.close());
      await sender.setup([event]);
      await channel.checkExchange(topic);
    });

    it("is refused for good with wrong credentials, and does not tell them", async () => {
      const wrong = new URL(url);
      wrong.username = "nobody";
      wrong.password = "very-secret";
      const refused = rabbitmqSender({ url: wrong.href }).connect?.(new AbortController().signal);
      await expect(refused).rejects.toBeInstanceOf(ConfigError);
      const error = await (refused as Promise<void>).catch((thrown: Error) => thrown);
      expect(String(error)).toContain("refuses these credentials");
      expect(JSON.stringify(error, Object.getOwnPropertyNames(error))).not.toContain("very-secret");
    });

    it("says what may be wrong when it is not let into a virtual host, and may be later", async () => {
      const elsewhere = rabbitmqSender({ url: `${url}/no-such-host` });
      onTestFinished(() => elsewhere.close());
      const refused = elsewhere.connect?.(new AbortController().signal);
      await expect(refused).rejects.toBeInstanceOf(TransportDownError);
      await expect(refused).rejects.toThrow(/no virtual host of that name/);
    });

    it("shows no part of a URL that is none", () => {
      for (const bad of ["amqp://u:very secret@h:99999", "amqp:/u:very-secret@h"]) {
        const made = () => rabbitmqSender({ url: bad });
        expect(made).toThrow("[option-invalid]");
        expect(made).not.toThrow("secret");
      }
    });

    it("asks no longer for credentials than it may take to connect", async () => {
      const sender = rabbitmqSender({ url, connectTimeoutMs: 100, credentials: () => new Promise(() => {}) });
      await expect(sender.connect?.(new AbortController().signal)).rejects.toThrow(/credentials/);
    });

    it("takes no header for one that the broker acts upon", async () => {
      const { topic, event, queue, channel } = await stage();
      const sender = rabbitmqSender({ url });
      onTestFinished(() => sender.close());
      const headers = { CC: "elsewhere", BCC: "elsewhere", "x-received-from": "me", plain: "yes" };
      const { outcomes, sent } = sending(sender, [testMessage("m1", { type: event.type, topic, headers })]);
      await sent;
      expect(outcomes).toEqual([{ status: "sent" }]);
      const raw = await channel.get(queue, { noAck: true });
      if (raw === false) throw new Error("nothing arrived");
      const read = fromAmqp(raw as never, { exchange: topic, unprefixed: false, maxMessageBytes: 1000 });
      expect(read.headers).toEqual(headers);
    });

    it("asks for credentials anew with each connection", async () => {
      const { message } = await stage();
      const { username, password, protocol, host } = new URL(url);
      let asked = 0;
      const through = await way();
      const bare = new URL(through.url);
      [bare.username, bare.password] = ["", ""];
      const sender = rabbitmqSender({
        url: bare.href,
        credentials: async () => {
          asked++;
          return { username: username || "guest", password: password || "guest" };
        },
      });
      onTestFinished(() => sender.close());
      expect(`${protocol}//${host}`).toMatch(/^amqp/);
      await sending(sender, [message("m1")]).sent;
      through.cut();
      through.mend();
      await sending(sender, [message("m2")]).sent.catch(() => {});
      await sending(sender, [message("m3")]).sent;
      expect(asked).toBeGreaterThanOrEqual(2);
    });
  });

  describe("a receiver", () => {
    async function receiving(
      options: Partial<RabbitmqReceiverOptions> = {},
      {
        prepare,
        take,
      }: {
        prepare?: (channel: Channel, queue: string) => Promise<void>;
        take?: (delivery: Delivery) => Promise<void>;
      } = {},
    ) {
      const made = await stage();
      await prepare?.(made.channel, made.queue);
      const stop = new AbortController();
      const deliveries: Delivery[] = [];
      const failures: Error[] = [];
      let arrived = gate();
      const receiver = rabbitmqReceiver({
        url,
        queue: made.queue,
        backoff: () => 20,
        telemetry: (event) => {
          if (event.name === "transport.lost") failures.push(event.error);
        },
        ...options,
      });
      const running = receiver.receive(
        {
          consumer: "test",
          events: [made.event],
          async deliver(delivery) {
            deliveries.push(delivery);
            arrived.open();
            await take?.(delivery);
          },
        },
        stop.signal,
      );
      running.catch(() => {});
      onTestFinished(async () => {
        stop.abort();
        await settlesWithin(running, 5000);
      });
      const next = async (): Promise<Delivery> => {
        if (deliveries.length === 0) {
          arrived = gate();
          expect(await settlesWithin(arrived.opened, 10_000)).toBe(true);
        }
        return deliveries.shift() as Delivery;
      };
      const publish = (id: string, how: object = {}) =>
        made.channel.publish(made.topic, "Happened", Buffer.from("{}"), {
          messageId: id,
          contentType: "application/json",
          headers: eventHeaders(id, made.event.type),
          ...how,
        });
      return { ...made, next, publish, running, stop, failures, deliveries };
    }

    type Receiving = Awaited<ReturnType<typeof receiving>>;

    it("goes on when its connection was lost", async () => {
      const through = await way();
      const { publish, next, failures } = await receiving({ url: through.url });
      publish("m1");
      await (await next()).ack();
      for (let round = 2; round < 5; round++) {
        through.cut();
        through.mend();
        publish(`m${round}`);
        // An ack that had not left the process yet is none: then the one before comes again.
        for (let id = ""; id !== `m${round}`; ) {
          const delivery = await next();
          id = delivery.message.id;
          await delivery.ack();
        }
      }
      expect(failures.length).toBeGreaterThanOrEqual(3);
    });

    it("begins anew wherever its connection dies while it begins, and ends wherever it dies while it ends", async () => {
      const through = await dyingWay(url);
      onTestFinished(() => through.close());
      // The first connection dies with the first thing that it says, the second with the second, until one has said enough.
      const { publish, next, deliveries, running, stop } = await receiving({ url: through.url, backoff: () => 1 });
      publish("m1");
      await (await next()).ack();
      expect(through.deaths()).toBeGreaterThan(10);

      for (let said = 1; said <= 3; said++) {
        const another = await receiving({ url: through.url, backoff: () => 1 });
        another.publish("m1");
        await (await another.next()).ack();
        through.dieAfter(said);
        await ends(another);
      }
      through.dieAfter(1);
      await ends({ deliveries, running, stop });
    });

    /** What was delivered again, since its ack had died, is settled, too. */
    async function ends({
      deliveries,
      running,
      stop,
    }: Pick<Receiving, "deliveries" | "running" | "stop">): Promise<void> {
      stop.abort();
      for (const delivery of deliveries) await delivery.ack().catch(() => {});
      expect(await settlesWithin(running, 5_000)).toBe(true);
    }

    it("makes its queue anew when somebody deletes it, and binds it", async () => {
      const { channel, queue, publish, next, failures } = await receiving();
      publish("m1");
      await (await next()).ack();
      await channel.deleteQueue(queue);
      await expect.poll(() => failures.length, { timeout: 10_000 }).toBeGreaterThan(0);
      await expect
        .poll(
          () =>
            admin.createChannel().then(async (own) => {
              own.on("error", () => {});
              return own.checkQueue(queue).then(
                () => true,
                () => false,
              );
            }),
          { timeout: 10_000 },
        )
        .toBe(true);
      let came = false;
      const first = next().then(() => {
        came = true;
      });
      // It is bound a moment after it is there.
      for (let tries = 0; !came && tries < 50; tries++) {
        publish(`again-${tries}`);
        await settlesWithin(first, 100);
      }
      expect(came).toBe(true);
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
      // As much as other clients can write, which leaves no room for a reason.
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
      // A copy goes where it is sent, and nowhere else.
      expect(await rabbitmqParkingLot({ url, queue }).count()).toBe(1);
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

    it("says which exchange is missing with topology: check", async () => {
      const { running } = await receiving(
        { topology: "check" },
        {
          async prepare(own, name) {
            await own.assertQueue(`${name}.parked`, { arguments: { "x-queue-type": "quorum" } });
            await own.deleteExchange(name.replace(/^queue\./, ""));
          },
        },
      );
      await expect(running).rejects.toMatchObject({ code: "topology-missing" });
      await expect(running).rejects.toThrow(/exchange test\./);
    });

    it("can be stopped while it connects", async () => {
      const through = await way();
      through.swallow();
      const { running, stop } = await receiving({ url: through.url });
      await new Promise((resolve) => setTimeout(resolve, 50));
      stop.abort();
      expect(await settlesWithin(running, 2000)).toBe(true);
      await running;
    });

    it("waits for what it handed over when its connection dies while it stops", async () => {
      const through = await way();
      const taken = gate();
      const { publish, next, running, stop, deliveries, channel, queue } = await receiving(
        { url: through.url },
        { take: () => taken.opened },
      );
      for (const id of ["m1", "m2", "m3"]) publish(id);
      const first = await next();
      // The others are on their way, or in its hands.
      await expect.poll(async () => (await channel.checkQueue(queue)).messageCount).toBe(0);
      stop.abort();
      through.cut();
      expect(await settlesWithin(running, 300)).toBe(false);
      expect(deliveries).toEqual([]);
      taken.open();
      await first.ack().catch(() => {});
      expect(await settlesWithin(running, 5000)).toBe(true);
    });

    it.each([".parked", ".wait.64"])("makes <queue>%s anew when somebody has deleted it", async (which) => {
      const { channel, queue, publish, next } = await receiving();
      publish("m1");
      const first = await next();
      // The wait queue is made when it is first needed, and remembered.
      await first.retry(0);
      const second = await next();
      await channel.deleteQueue(queue + which);
      if (which === ".parked") await second.park(new Error("never"));
      else await second.retry(0);
      if (which === ".parked") expect(await rabbitmqParkingLot({ url, queue }).count()).toBe(1);
      else expect((await next()).attempt).toBe(3);
    });

    it("keeps what it cannot put aside, and does not try again at once", async () => {
      const { channel, queue, publish, next, deliveries } = await receiving(
        { topology: "check" },
        {
          // It takes one message, and refuses all others.
          async prepare(own, name) {
            const full = { "x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish" };
            await own.assertQueue(`${name}.parked`, { arguments: full });
          },
        },
      );
      publish("m1");
      publish("m2");
      publish("m3");
      const [m1, m2, m3] = [await next(), await next(), await next()];
      await m1.park(new Error("never"));
      const refusals = await Promise.allSettled([m2.park(new Error("never")), m3.park(new Error("never"))]);
      expect(refusals.filter(({ status }) => status === "rejected").length).toBeGreaterThan(0);
      expect(refusals.find(({ status }) => status === "rejected")).toMatchObject({
        reason: { code: "publish-failed" },
      });
      await new Promise((resolve) => setTimeout(resolve, 200));
      expect(deliveries).toEqual([]);
      await channel.purgeQueue(`${queue}.parked`);
      const again = await next();
      expect(again.attempt).toBe(2);
      await again.park(new Error("never"));
    });

    it("gives back what its consumer does not take", async () => {
      const { publish, next, queue } = await receiving(
        {},
        { take: ({ attempt }) => (attempt < 3 ? Promise.reject(new Error("not now")) : Promise.resolve()) },
      );
      publish("m1");
      for (let delivery = await next(); ; delivery = await next()) {
        if (delivery.attempt < 3) continue;
        await delivery.ack();
        break;
      }
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

    it("gets back what was parked, as if it had never been tried, and no more than was asked for", async () => {
      const { publish, next, queue, deliveries } = await receiving();
      for (const id of ["m1", "m2", "m3"]) {
        publish(id);
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
      // What fails again while it is replayed is not replayed once more.
      await again[0]?.park(new Error("still no such order"));
      expect(await lot.replay({ limit: 100 })).toBe(2);
      expect([(await next()).message.id, (await next()).message.id].sort()).toEqual(["m1", "m3"]);
      expect([await lot.count(), deliveries.length]).toEqual([0, 0]);
      await expect(lot.replay({ limit: 0 })).rejects.toMatchObject({ code: "option-invalid" });
    });

    it("only looks for its queues with topology: check, and says what is missing", async () => {
      const { running } = await receiving({ topology: "check" });
      await expect(running).rejects.toThrow(/\[topology-missing\] there is no queue .*\.parked/);
    });

    it("says what differs from what is there", async () => {
      const { running } = await receiving({ queueType: "classic" });
      await expect(running).rejects.toThrow(/\[topology-differs\] .*x-queue-type/);
    });

    it("has dead letters if it is asked to", async () => {
      const { running, queue, channel } = await receiving({ deadLetter: true });
      // The queue of the stage has none.
      await expect(running).rejects.toThrow("[topology-differs]");
      await channel.deleteQueue(queue);
      const stop = new AbortController();
      const again = rabbitmqReceiver({ url, queue, deadLetter: true, bindings: false }).receive(
        { consumer: "test", events: [], deliver: async () => {} },
        stop.signal,
      );
      await expect
        .poll(
          async () => {
            const own = await admin.createChannel();
            own.on("error", () => {});
            return own.checkQueue(`${queue}.dead`).then(
              () => true,
              () => false,
            );
          },
          { timeout: 10_000 },
        )
        .toBe(true);
      stop.abort();
      await again;
    });

    it("is refused for good with wrong credentials", async () => {
      const wrong = new URL(url);
      wrong.password = "very-secret";
      wrong.username = "nobody";
      const { running } = await receiving({ url: wrong.href });
      await expect(running).rejects.toThrow("[transport-refused]");
    });
  });
});

function eventHeaders(id: string, type: string): Record<string, unknown> {
  return {
    "cloudEvents:specversion": "1.0",
    "cloudEvents:id": id,
    "cloudEvents:source": "/",
    "cloudEvents:type": type,
  };
}

/** A way to a server on which each connection dies one step later than the one before it: it gets no further than to what it says then. */
async function dyingWay(url: string) {
  const target = new URL(url);
  let deaths = 0;
  let left = Number.POSITIVE_INFINITY;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    let steps = deaths + 1;
    const broker = dial(Number(target.port || 5672), target.hostname);
    const die = () => {
      client.destroy();
      broker.destroy();
    };
    for (const socket of [client, broker]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", die);
    }
    client.on("data", (data) => {
      if (--steps > 0 && --left > 0) return broker.write(data);
      deaths++;
      left = Number.POSITIVE_INFINITY;
      return die();
    });
    broker.on("data", (data) => client.write(data));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const through = new URL(url);
  through.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url: through.href,
    deaths: () => deaths,
    /** Whoever says the next thing but so many less one dies of it. */
    dieAfter(said: number) {
      left = said;
    },
    close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
