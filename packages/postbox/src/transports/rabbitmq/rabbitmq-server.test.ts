import { settlesWithin, testMessage } from "@postbox/testkit";
import { type DisposableRabbitmq, disposable, freePort } from "@postbox/testkit/servers";
import { connect } from "amqplib";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { ConfigError, TransportDownError } from "../../errors.js";
import { defineEvent } from "../../event/define-event.js";
import type { Delivery, Outcome } from "../../transport.js";
import {
  type RabbitmqReceiverOptions,
  type RabbitmqSenderOptions,
  rabbitmqParkingLot,
  rabbitmqReceiver,
  rabbitmqSender,
} from "./index.js";

/** Tests that would disturb other users of a shared broker. */
describe("a RabbitMQ of its own", () => {
  let server: DisposableRabbitmq;
  beforeAll(async () => {
    server = await disposable("rabbitmq");
  });
  afterAll(() => server?.stop());

  const event = defineEvent({
    type: "test.Happened",
    schema: { "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) } },
  });
  const message = (id: string) => testMessage(id, { type: event.type, topic: event.topic });

  function sender(options: Partial<RabbitmqSenderOptions> = {}) {
    const made = rabbitmqSender({ url: server.url, ...options });
    onTestFinished(() => made.close());
    return made;
  }

  async function send(by: ReturnType<typeof sender>, ...ids: readonly string[]): Promise<(Outcome | undefined)[]> {
    const outcomes: (Outcome | undefined)[] = ids.map(() => undefined);
    await by.send(ids.map(message), (index, outcome) => (outcomes[index] = outcome), new AbortController().signal);
    return outcomes;
  }

  /** Receives until the end of the test. */
  function receive(
    queue: string,
    deliver: (delivery: Delivery) => Promise<void>,
    queueType: "quorum" | "classic" = "quorum",
    options: Partial<RabbitmqReceiverOptions> = {},
  ) {
    const stopping = new AbortController();
    const receiver = rabbitmqReceiver({ url: server.url, queue, queueType, ...options });
    const running = receiver.receive({ consumer: queue, events: [event], deliver }, stopping.signal);
    const stop = () => {
      stopping.abort();
      return running;
    };
    onTestFinished(stop);
    return { health: receiver.health, stop };
  }

  describe("that is short of memory", () => {
    const alarm = () => server.control("set_vm_memory_high_watermark", "absolute", "1MB");
    const allClear = () => server.control("set_vm_memory_high_watermark", "0.4");
    afterEach(async () => {
      await allClear();
    });

    it("is away for senders and says why, holds up no receiver, and loses nothing", async () => {
      const handled: string[] = [];
      receive("alarmed", async (delivery) => {
        handled.push(delivery.message.id);
        await delivery.ack();
      });
      const by = sender();
      await expect.poll(async () => (await send(by, "first").catch(() => []))[0]?.status).toBe("sent");
      await alarm();
      // The broker reports the alarm on the next publish, and reads nothing more from that connection.
      const waiting = send(by, "waiting");
      expect(await settlesWithin(waiting, 300)).toBe(false);
      const refused = send(by, "refused");
      await expect(refused).rejects.toBeInstanceOf(TransportDownError);
      await expect(refused).rejects.toThrow(/takes no messages at the moment: .*memory/);
      await allClear();
      expect(await waiting).toEqual([{ status: "sent" }]);
      expect(await send(by, "last")).toEqual([{ status: "sent" }]);
      await expect.poll(() => handled.slice(-2)).toEqual(["waiting", "last"]);
      expect(handled).not.toContain("refused");
    });

    it("gets no more than one copy, however often it is asked meanwhile", async () => {
      const handled: string[] = [];
      receive("alarmed", async (delivery) => {
        handled.push(delivery.message.id);
        await delivery.ack();
      });
      const by = sender({ publishTimeoutMs: 300 });
      await expect.poll(async () => (await send(by, "before").catch(() => []))[0]?.status).toBe("sent");
      await alarm();
      for (let times = 0; times < 5; times++) {
        await expect(send(by, "again")).rejects.toBeInstanceOf(TransportDownError);
      }
      await allClear();
      await expect.poll(async () => (await send(by, "after").catch(() => []))[0]?.status).toBe("sent");
      await expect.poll(() => handled).toContain("after");
      expect(handled.filter((id) => id === "again")).toHaveLength(1);
    });

    /** Two messages are unsettled when the alarm begins: one that the receiver is setting aside, and another one. */
    async function putAside(queue: string) {
      const held: Delivery[] = [];
      // A long heartbeat, so that a missed one does not end the connection during the wait.
      const patient = { heartbeatSeconds: 120 };
      const consumer = receive(queue, async (delivery) => void held.push(delivery), "classic", patient);
      const by = sender();
      await expect.poll(() => consumer.health().status).toBe("connected");
      await send(by, "bad", "good");
      await expect.poll(() => held.length).toBe(2);
      await alarm();
      const [bad, good] = held as [Delivery, Delivery];
      const retried = bad.retry(10);
      await expect.poll(() => consumer.health().status).toBe("blocked");
      return { ...consumer, good, retried, held };
    }

    it("lets a receiver go on with others while one waits to be put aside", async () => {
      const { health, good, retried, held } = await putAside("aside");
      await good.ack();
      const unacked = () => server.control("list_queues", "--quiet", "--no-table-headers", "name", "messages");
      await expect.poll(unacked).toMatch(/^aside\t1$/m);
      expect(await settlesWithin(retried, 300)).toBe(false);
      await allClear();
      await retried;
      await expect.poll(() => held.slice(2)).toMatchObject([{ message: { id: "bad" }, attempt: 2 }]);
      expect(health().status).toBe("connected");
      await held[2]?.ack();
    });

    it("is not waited for by a receiver that stops, nor by a sender", async () => {
      const { good, retried, stop } = await putAside("stopped");
      await good.ack();
      const [refused, stopped] = [expect(retried).rejects.toMatchObject({ code: "publish-failed" }), stop()];
      await refused;
      await stopped;
      const by = sender();
      const waiting = expect(send(by, "never")).rejects.toBeInstanceOf(TransportDownError);
      await expect.poll(() => by.health().status).toBe("blocked");
      await by.close();
      await waiting;
      await allClear();
      const again: string[] = [];
      receive(
        "stopped",
        async (delivery) => {
          again.push(delivery.message.id);
          await delivery.ack();
        },
        "classic",
      );
      await expect.poll(() => again).toContain("bad");
    });
  });

  describe("whose operator closes the connection of what is put aside", () => {
    it("is put aside to over another one, and holds up no receiver", async () => {
      const arrived: Delivery[] = [];
      const { health } = receive("closed", async (delivery) => void arrived.push(delivery));
      await expect.poll(() => health().status).toBe("connected");
      const { since } = health();
      const by = sender();
      for (const id of ["m1", "m2"]) {
        await send(by, id);
        await expect.poll(() => arrived.length).toBe(1);
        await arrived.pop()?.retry(10);
        await expect.poll(() => arrived).toMatchObject([{ message: { id }, attempt: 2 }]);
        await arrived.pop()?.ack();
        const open = await server.control("list_connections", "--quiet", "pid", "client_properties");
        const [aside, ...others] = open.split("\n").filter((line) => line.includes("postbox aside"));
        expect(others).toEqual([]);
        await server.control("close_connection", aside?.split("\t")[0] ?? "", "for a test");
      }
      expect(health()).toEqual({ status: "connected", since });
    });
  });

  describe("whose password is changed", () => {
    it("is asked again until it accepts the new one, by consumers, too", async () => {
      const user = { username: "rotated", password: "first" };
      await server.control("add_user", user.username, user.password);
      await server.control("set_permissions", user.username, ".*", ".*", ".*");
      const credentials = () => ({ ...user });
      const told: string[] = [];
      const telemetry: RabbitmqReceiverOptions["telemetry"] = (each) => {
        if (each.name === "transport.lost") told.push(each.error.code);
      };
      const received: string[] = [];
      const backoff = () => 50;
      const deliver = async ({ message: { id }, ack }: Delivery) => {
        received.push(id);
        await ack();
      };
      const { health } = receive("rotated", deliver, "quorum", { credentials, telemetry, backoff });
      await expect.poll(() => health().status).toBe("connected");
      await server.control("change_password", user.username, "second");
      await server.control("close_all_user_connections", user.username, "for a test");
      await expect.poll(() => told).toContain("transport-refused");
      expect(health()).toMatchObject({ status: "down", lastFailure: { code: "transport-refused" } });
      user.password = "second";
      await expect.poll(() => health().status).toBe("connected");
      await expect.poll(async () => (await send(sender(), "m1"))[0]?.status).toBe("sent");
      await expect.poll(() => received).toEqual(["m1"]);
    });
  });

  describe("whose limits are lower than the sender's", () => {
    const limit = (bytes: number) =>
      // RabbitMQ 3 reads the first setting, RabbitMQ 4 the second.
      server.control(
        "eval",
        `application:set_env(rabbit, max_message_size, ${bytes}), persistent_term:put(max_message_size, ${bytes}).`,
      );

    it("refuses one message for good, says why, and is not sent such a one again", async () => {
      const received: string[] = [];
      receive("sizes", async ({ message: { id }, ack }) => {
        received.push(id);
        await ack();
      });
      const first = sender();
      await expect.poll(async () => (await send(first, "m0").catch(() => []))[0]?.status).toBe("sent");
      await limit(1000);
      onTestFinished(async () => {
        await limit(134_217_728);
      });
      // The limit applies to channels opened from now on.
      const by = sender();
      const large = (id: string) => ({ ...message(id), data: new Uint8Array(2000) });
      const outcomes: (Outcome | undefined)[] = [];
      const batch = [message("m1"), large("m2"), message("m3")];
      await by.send(batch, (index, outcome) => (outcomes[index] = outcome), new AbortController().signal);
      expect(outcomes[1]).toMatchObject({ status: "rejected", error: { code: "message-too-large" } });
      expect(String((outcomes[1] as { error: Error }).error)).toMatch(/has 2000 bytes.*takes 1000/);
      for (const outcome of [outcomes[0], outcomes[2]]) {
        if (outcome?.status !== "sent") expect(outcome).toMatchObject({ status: "failed", uncounted: true });
      }
      expect(await send(by, "m4")).toEqual([{ status: "sent" }]);
      const { since } = by.health();
      const again: (Outcome | undefined)[] = [];
      const second = [large("m5"), message("m6")];
      await by.send(second, (index, outcome) => (again[index] = outcome), new AbortController().signal);
      expect(again.map((outcome) => outcome?.status)).toEqual(["rejected", "sent"]);
      expect(by.health().since).toEqual(since);
      await expect.poll(() => received).toContain("m6");
      expect(received).not.toContain("m2");
    });
  });

  describe.each(["quorum", "classic"] as const)("with policies of an operator, %s", (queueType) => {
    const policy = async (queue: string, definition: object) => {
      const pattern = `^${queue.replaceAll(".", "\\.")}$`;
      await server.control("set_policy", "--apply-to", "queues", queue, pattern, JSON.stringify(definition));
      onTestFinished(async () => {
        await server.control("clear_policy", queue);
      });
    };
    /** Creates a bound queue without a consumer. */
    const prepared = async (queue: string) => {
      const { health, stop } = receive(queue, (delivery) => delivery.ack(), queueType);
      await expect.poll(() => health().status).toBe("connected");
      await stop();
      // The queue would also receive the messages of other tests.
      onTestFinished(async () => {
        const connection = await connect(server.url);
        const channel = await connection.createChannel();
        for (const name of [queue, `${queue}.parked`]) await channel.deleteQueue(name);
        await connection.close();
      });
    };

    it.each([
      ["refuses what is sent", {}],
      // For a quorum queue, a policy's overflow overrides the queue's own.
      ["parks what it drops, or refuses what is sent, if it says drop-head", { overflow: "drop-head" }],
    ])("a limit of length %s, and loses nothing", async (_, overflow) => {
      const queue = `length.${queueType}`;
      await prepared(queue);
      await policy(queue, { "max-length": 5, ...overflow });
      const by = sender();
      const sent = new Set<string>();
      for (let n = 0; n < 60; n++) {
        const [outcome] = await send(by, `m${n}`);
        if (outcome?.status === "sent") sent.add(`m${n}`);
        else expect(outcome).toMatchObject({ status: "failed", error: { code: "publish-failed" } });
      }
      expect(sent.size).toBeGreaterThanOrEqual(5);
      if (!("overflow" in overflow)) expect(sent.size).toBeLessThan(60);
      const lot = rabbitmqParkingLot({ url: server.url, queue });
      const parked = await lot.list({ limit: 100 });
      for (const { reason } of parked) expect(reason).toBe("the queue was full");
      const handled = new Set<string | undefined>(parked.map(({ id }) => id));
      receive(
        queue,
        async ({ message: { id }, ack }) => {
          await ack();
          handled.add(id);
        },
        queueType,
      );
      await expect.poll(() => [...sent].every((id) => handled.has(id))).toBe(true);
    });

    it("a message whose TTL expires is parked with its reason, whatever a policy says about dead letters", async () => {
      const queue = `expiry.${queueType}`;
      await prepared(queue);
      await policy(queue, { "message-ttl": 20, "dead-letter-exchange": "amq.fanout" });
      const by = sender();
      expect(await send(by, "m1")).toEqual([{ status: "sent" }]);
      const lot = rabbitmqParkingLot({ url: server.url, queue });
      await expect.poll(() => lot.count()).toBe(1);
      expect(await lot.list({ limit: 1 })).toEqual([{ id: "m1", reason: expect.stringContaining("expired") }]);
    });
  });

  describe("that is killed", () => {
    it("has what it has confirmed also in a queue that is not replicated", async () => {
      const first = await connect(server.url);
      const channel = await first.createChannel();
      await channel.assertExchange(event.topic, "topic", { durable: true });
      await channel.assertQueue("classic", { durable: true, arguments: { "x-queue-type": "classic" } });
      await channel.bindQueue("classic", event.topic, "Happened");
      await first.close();
      const by = sender();
      expect(await send(by, "m1", "m2")).toEqual([{ status: "sent" }, { status: "sent" }]);
      await server.keepQueues();
      await server.kill();
      await expect(send(by, "m3")).rejects.toBeInstanceOf(TransportDownError);
      await server.restart();
      const handled: string[] = [];
      receive(
        "classic",
        async (delivery) => {
          handled.push(delivery.message.id);
          await delivery.ack();
        },
        "classic",
        { topology: "none" },
      );
      await expect.poll(() => handled).toEqual(["m1", "m2"]);
    });
  });

  describe("that speaks TLS", () => {
    let port: number;
    let ca: string[];
    let encrypted: string;
    beforeAll(async () => {
      port = await freePort();
      const authorities = await server.control("eval", certify(port));
      ca = authorities.match(/[A-Za-z0-9+/=]{100,}/g)?.map(pem) ?? [];
      const url = new URL(server.url);
      url.protocol = "amqps:";
      url.port = String(port);
      encrypted = url.href;
    });

    it("is sent to and received from by who trusts it", async () => {
      const trusting = { url: encrypted, tls: { ca } };
      const arrived: string[] = [];
      const deliver = async (delivery: Delivery) => {
        arrived.push(delivery.message.id);
        await delivery.ack();
      };
      receive("encrypted", deliver, "quorum", trusting);
      const by = sender(trusting);
      // Until this queue is bound, only queues of other tests receive it.
      const arrivedNow = async () => {
        await send(by, "m1");
        return arrived[0];
      };
      await expect.poll(arrivedNow).toBe("m1");
      expect(await server.control("list_connections", "--quiet", "--no-table-headers", "ssl")).toBe("true\ntrue\n");
    });

    it("is refused for good by who does not, without the password in the error", async () => {
      const by = sender({ url: encrypted });
      const sent = send(by, "m1");
      await expect(sent).rejects.toBeInstanceOf(ConfigError);
      await expect(sent).rejects.toMatchObject({ code: "transport-refused" });
      const { message: text } = (await sent.catch((error: Error) => error as Error)) as Error;
      expect(text).toContain("certificate");
      expect(text).not.toContain(new URL(server.url).password);
    });
  });
});

/**
 * An Erlang program that creates certificate authorities and a server certificate, starts a TLS listener on this port,
 * and prints the authorities.
 */
function certify(port: number): string {
  return `
    Chain = #{root => [{key, {rsa, 2048, 65537}}, {digest, sha256}], intermediates => []},
    Name = {'Extension', {2,5,29,17}, false, [{iPAddress, <<127,0,0,1>>}]},
    Peer = [{key, {rsa, 2048, 65537}}, {digest, sha256}, {extensions, [Name]}],
    #{server_config := Server, client_config := Client} =
      public_key:pkix_test_data(#{server_chain => Chain#{peer => Peer}, client_chain => Chain#{peer => Peer}}),
    rabbit_networking:start_ssl_listener({"127.0.0.1", ${port}}, Server, 1),
    [io:format("~s~n", [base64:encode(Authority)]) || Authority <- proplists:get_value(cacerts, Client)],
    ok.`;
}

function pem(base64: string): string {
  return ["-----BEGIN CERTIFICATE-----", ...(base64.match(/.{1,64}/g) ?? []), "-----END CERTIFICATE-----", ""].join(
    "\n",
  );
}
