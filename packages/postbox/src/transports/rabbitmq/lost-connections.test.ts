import { type AddressInfo, createServer, connect as dial, type Socket } from "node:net";
import { gate, settlesWithin, telemetryLog } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { createOutbox, createRouter, inbox, silent, transaction } from "postbox";
import { memoryStore } from "postbox/memory";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Receiving, rabbitmqStages, sending } from "../../../fixtures/rabbitmq-stage.js";
import { TransportDownError } from "../../errors.js";
import { rabbitmqReceiver, rabbitmqSender } from "./index.js";

const patienceMs = 20_000;

/** The ways and the moments in which a connection can be lost. */
describeOnEach("rabbitmq", ({ url }) => {
  const { stage, receiving, way } = rabbitmqStages(url);

  describe("a sender", () => {
    it("settles everything that is on its way when the connection dies", async () => {
      const { message } = await stage();
      const through = await way();
      const sender = rabbitmqSender({ url: through.url, publishTimeoutMs: 600_000 });
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
      expect(await settlesWithin(sent, patienceMs)).toBe(true);
      await expect(sent).rejects.toMatchObject({ code: "transport-down", during: "send" });
      expect(outcomes.every((outcome) => outcome === undefined)).toBe(true);
    });

    it.each([
      ["before the first message", { code: "transport-down", during: "connect" }],
      // The broker may only be slow, so no message becomes suspect.
      ["after it", { code: "publish-timeout" }],
    ])("gives up on a connection that says nothing %s, and takes another one", async (when, error) => {
      const { message } = await stage();
      const through = await way();
      // A long heartbeat, so that the timeout ends the connection.
      const sender = rabbitmqSender({ url: through.url, publishTimeoutMs: 1000, heartbeatSeconds: 600 });
      onTestFinished(() => sender.close());
      const isSent = async (id: string) => {
        const { outcomes, sent } = sending(sender, [message(id)]);
        await sent.catch(() => {});
        return outcomes[0]?.status;
      };
      await sender.connect?.(new AbortController().signal);
      if (when === "after it") await expect.poll(() => isSent("m0")).toBe("sent");
      through.swallow();
      const lost = sending(sender, [message("m1")]).sent;
      await expect(lost).rejects.toMatchObject(error);
      through.mend();
      // Polls, since connecting and sending may exceed the timeout on a slow machine.
      await expect.poll(() => isSent("m2")).toBe("sent");
    });

    it.each(["connects", "publishes"])("gives up when it is aborted while it %s and nobody answers", async (when) => {
      const { message } = await stage();
      const through = await way();
      const sender = rabbitmqSender({ url: through.url, connectTimeoutMs: 60_000, publishTimeoutMs: 60_000 });
      // An orderly close would wait for an answer.
      onTestFinished(() => {
        through.cut();
        return sender.close();
      });
      if (when === "publishes") await sending(sender, [message("m0")]).sent;
      through.swallow();
      const abort = new AbortController();
      const { outcomes, sent } = sending(sender, [message("m1")], abort.signal);
      sent.catch(() => {});
      expect(await settlesWithin(sent, 100)).toBe(false);
      abort.abort();
      expect(await settlesWithin(sent, patienceMs)).toBe(true);
      await expect(sent).rejects.toBe(abort.signal.reason);
      expect(outcomes).toEqual([undefined]);
    });
  });

  describe("a receiver", () => {
    it("reconnects if the connection is lost at any step of setup, and stops if at any step of a stop", async () => {
      const through = await dyingWay(url);
      onTestFinished(() => through.close());
      // The first connection is cut at its first write, the second at its second, and so on, until one completes its
      // setup.
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

    /** Also settles redeliveries, which occur when a connection was cut before its ack. */
    async function ends({
      deliveries,
      running,
      stop,
    }: Pick<Receiving, "deliveries" | "running" | "stop">): Promise<void> {
      stop.abort();
      for (const delivery of deliveries) await delivery.ack().catch(() => {});
      expect(await settlesWithin(running, patienceMs)).toBe(true);
    }

    it("takes another connection when one says nothing any more, not even that it lives", async () => {
      const through = await way();
      const { publish, next, failures } = await receiving({ url: through.url, heartbeatSeconds: 1 });
      publish("m1");
      await (await next()).ack();
      through.swallow();
      await expect.poll(() => failures.length).toBeGreaterThan(0);
      through.mend();
      publish("m2");
      await expect.poll(async () => (await next()).message.id).toBe("m2");
    });

    it("can be stopped while it connects", async () => {
      const through = await way();
      through.swallow();
      const { running, stop } = await receiving({ url: through.url, connectTimeoutMs: 60_000 });
      expect(await settlesWithin(running, 50)).toBe(false);
      stop.abort();
      expect(await settlesWithin(running, patienceMs)).toBe(true);
      await running;
    });

    it("if the connection is lost during a stop, waits for its deliveries and delivers nothing more", async () => {
      const through = await way();
      const taken = gate();
      const { publish, next, running, stop, deliveries, failures, channel, queue } = await receiving(
        { url: through.url },
        { take: () => taken.opened },
      );
      for (const id of ["m1", "m2", "m3"]) publish(id);
      const first = await next();
      // The other messages are in flight, or buffered in the receiver.
      await expect.poll(async () => (await channel.checkQueue(queue)).messageCount).toBe(0);
      stop.abort();
      through.cut();
      await expect.poll(() => failures.length).toBe(1);
      expect(await settlesWithin(running, 300)).toBe(false);
      taken.open();
      // The consumer has taken the message and not settled it yet.
      expect(await settlesWithin(running, 300)).toBe(false);
      await expect(first.ack()).rejects.toBeInstanceOf(TransportDownError);
      expect(await settlesWithin(running, patienceMs)).toBe(true);
      expect(deliveries).toEqual([]);
    });
  });

  describe("a router", () => {
    /**
     * Each handler writes one effect. Handlers that ran when the connection was lost end when the test opens `finish`.
     */
    async function handling(inboxOn: boolean) {
      const through = await way();
      const { event, queue, publish, channel } = await stage();
      const [store, log, lost, finish] = [memoryStore(), telemetryLog(), gate(), gate()];
      const outbox = createOutbox(store, { source: "/effects" });
      let isLost = false;
      const options = { concurrency: 2, telemetry: log.telemetry };
      const router = inboxOn
        ? createRouter("billing", options).use(transaction(store)).use(inbox(store))
        : createRouter("billing", options).use(transaction(store));
      router.on(event, async (_, { tx, message: { id }, signal }) => {
        await outbox.in(tx).publish(event, { id });
        if (isLost) return;
        signal.addEventListener("abort", lost.open);
        await finish.opened;
      });
      router.start(rabbitmqReceiver({ url: through.url, queue, backoff: () => 1, telemetry: silent }));
      onTestFinished(async () => {
        finish.open();
        await router.stop();
      });
      for (const id of ["m1", "m2", "m3", "m4", "m5"]) publish(id);
      await log.until("delivery.received", 2);
      await expect.poll(async () => (await channel.checkQueue(queue)).messageCount).toBe(0);
      isLost = true;
      through.cut();
      through.mend();
      // The router dropped deliveries that it had not started.
      await log.until("delivery.revoked");
      const effects = () =>
        store.contents("outbox").pending.map(({ data }) => JSON.parse(String(Buffer.from(data))).id);
      return { log, lost, finish, effects: () => effects().sort() };
    }

    it("a lost connection drops waiting deliveries and rolls back running ones: each is handled again", async () => {
      const { log, lost, finish, effects } = await handling(false);
      expect(await settlesWithin(lost.opened, patienceMs)).toBe(true);
      finish.open();
      await log.until("delivery.acked", 5);
      expect(effects()).toEqual(["m1", "m2", "m3", "m4", "m5"]);
      expect(log.of("delivery.revoked").length).toBeGreaterThanOrEqual(2);
      expect(log.of("router.failed")).toEqual([]);
    });

    it("lets what runs commit behind an inbox, which skips it when it is delivered again", async () => {
      const { log, finish, effects } = await handling(true);
      finish.open();
      await log.until("delivery.acked", 5);
      await expect.poll(effects).toEqual(["m1", "m2", "m3", "m4", "m5"]);
      expect(log.of("delivery.skipped").length).toBeGreaterThanOrEqual(2);
      expect(log.of("router.failed")).toEqual([]);
    });
  });
});

/**
 * A proxy to a server that cuts the first connection at the client's first write, the second at its second, and so on.
 */
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
    /** Cuts the connection that makes the `said`th write from now on. */
    dieAfter(said: number) {
      left = said;
    },
    close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
