import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { Agent, get } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { describeOnEach, freePort } from "@postbox/testkit/servers";
import { expect, inject, it } from "vitest";

/* Runs every way to stop that the docs show, each in a child process. The process must exit by itself, and soon. */

const postgres = inject("servers").found.find(({ service }) => service === "postgres");

interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
}

/** Exceeds every allowed stop. A process killed by this limit did not exit by itself. */
const limitMs = 40_000;

/** Runs a program with the built packages. When it prints `stop me`, it receives SIGTERM. */
function program(
  text: string,
  env: Readonly<Record<string, string>>,
  heard: (out: string) => void = () => {},
): Promise<Ended> {
  const child = spawn(process.execPath, ["--input-type=module", "-e", text], {
    cwd: import.meta.dirname,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: limitMs,
    killSignal: "SIGKILL",
  });
  let [out, err] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    out += text;
    heard(out);
    if (text.includes("stop me")) child.kill("SIGTERM");
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    err += text;
  });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal, out, err }));
  });
}

const prelude = `
  import pg from "pg";
  import { createMessaging, createOutbox, createRelay, createRouter, defineEvent, inbox, transaction } from "postbox";
  import { connectStore, connectTransport } from "postbox/connect";
  import { postgresNotifier, postgresStore } from "postbox/postgres";
  import { rabbitmqReceiver, rabbitmqSender } from "postbox/rabbitmq";
  const { POSTGRES: database, RABBITMQ: url, NAME: name } = process.env;
  const schema = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };
  const Happened = defineEvent({ type: name + ".Happened", topic: name, schema });
  const remove = async () => {
    const { connect } = await import("amqplib");
    const connection = await connect(url);
    const channel = await connection.createChannel();
    for (const queue of [name, name + ".parked"]) await channel.deleteQueue(queue);
    await channel.deleteExchange(name);
    await connection.close();
  };
  let handled = () => {};
  const once = new Promise((resolve) => (handled = resolve));
  const onHappened = async () => handled();
`;
const withPool = `
  const pool = new pg.Pool({ connectionString: database });
  const store = postgresStore({ pool, schema: name });
  await store.migrate();
  const drop = () => pool.query('DROP SCHEMA "' + name + '" CASCADE');
`;

describeOnEach("rabbitmq", ({ url }) => {
  const env = () => ({
    POSTGRES: postgres?.url ?? "",
    RABBITMQ: url,
    NAME: `stop_${randomUUID().replaceAll("-", "")}`,
  });
  const clean: Ended = { code: 0, signal: null, out: "", err: "" };
  const way = (title: string, text: string) =>
    it.skipIf(postgres === undefined)(`${title}: the process ends`, async () => {
      expect(await program(prelude + text, env())).toEqual(clean);
    });

  way(
    "router.stop and relay.stop, then the pool",
    `${withPool}
    const outbox = createOutbox(store, { source: "/test" });
    const router = createRouter(name).use(transaction(store)).use(inbox(store)).on(Happened, onHappened);
    const notifier = postgresNotifier({ pool, schema: name });
    const relay = createRelay(store, rabbitmqSender({ url }), { pollIntervalMs: 20, notifier });
    await router.start(rabbitmqReceiver({ url }));
    await relay.start();
    await store.transaction((tx) => outbox.in(tx).publish(Happened, { a: 1 }));
    await once;
    await Promise.all([router.stop(), relay.stop()]);
    await remove();
    await drop();
    await pool.end();`,
  );

  way(
    "messaging.close, then the pool",
    `${withPool}
    const messaging = createMessaging({
      service: name, store, sender: rabbitmqSender({ url }),
      receiver: rabbitmqReceiver({ url, singleActiveConsumer: true }),
      outbox: true, inbox: "durable", pollIntervalMs: 20,
    });
    messaging.consumer().on(Happened, onHappened);
    await messaging.start();
    await store.transaction(() => messaging.publisher.publish(Happened, { a: 1 }));
    await once;
    await messaging.close();
    await remove();
    await drop();
    await pool.end();`,
  );

  way(
    "messaging.close without a store",
    `
    const [sender, receiver] = [rabbitmqSender({ url }), rabbitmqReceiver({ url })];
    const messaging = createMessaging({ service: name, sender, receiver });
    messaging.consumer().on(Happened, onHappened);
    await messaging.start();
    await messaging.publisher.publish(Happened, { a: 1 });
    await once;
    await messaging[Symbol.asyncDispose]();
    await remove();`,
  );

  way(
    "close of what was connected by URL",
    `
    const { store, pool, ...connected } = await connectStore(database, { schema: name });
    await store.migrate();
    const rabbitmq = { receiver: { prefetch: 7 }, sender: { connectionName: "one" } };
    const broker = await connectTransport(url, { rabbitmq });
    const messaging = createMessaging({
      service: name, store, sender: broker.sender(), receiver: (queue) => broker.receiver(queue), outbox: true,
    });
    messaging.consumer().on(Happened, onHappened);
    await messaging.start();
    await store.transaction(() => messaging.publisher.publish(Happened, { a: 1 }));
    await once;
    await messaging.stop();
    await remove();
    await pool.query('DROP SCHEMA "' + name + '" CASCADE');
    await Promise.all([broker.close(), connected.close()]);`,
  );

  way(
    "run until SIGTERM, then close",
    `${withPool}
    const stopping = new AbortController();
    let telemetry;
    const connected = new Promise((resolve) => (telemetry = ({ name }) => name === "transport.connected" && resolve()));
    process.once("SIGTERM", () => stopping.abort());
    const [sender, receiver] = [rabbitmqSender({ url }), rabbitmqReceiver({ url, telemetry })];
    const messaging = createMessaging({ service: name, store, sender, receiver, outbox: true });
    messaging.consumer().on(Happened, onHappened);
    const running = messaging.run(stopping.signal);
    await connected;
    await store.transaction(() => messaging.publisher.publish(Happened, { a: 1 }));
    await once;
    process.kill(process.pid, "SIGTERM");
    await running;
    await messaging.close();
    await remove();
    await drop();
    await pool.end();`,
  );

  it.skipIf(postgres === undefined)(
    "behind an HTTP server with a connection that becomes idle after the stop: the process ends",
    async () => {
      const agent = new Agent({ keepAlive: true });
      let answer: Promise<unknown> | undefined;
      const request = (out: string) => {
        const port = /listens on (\d+)/.exec(out)?.[1];
        if (port === undefined || answer !== undefined) return;
        answer = new Promise((resolve, reject) => {
          get({ agent, port, path: "/" }, (response) =>
            response.resume().on("end", () => resolve(response.statusCode)),
          ).on("error", reject);
        });
      };
      try {
        const { out, ...ended } = await program(
          `${prelude}${withPool}
          import { createServer } from "node:http";
          const [sender, receiver] = [rabbitmqSender({ url }), rabbitmqReceiver({ url })];
          const messaging = createMessaging({ service: name, store, sender, receiver, outbox: true });
          messaging.consumer().on(Happened, onHappened);
          const server = createServer((request, response) => {
            process.once("SIGTERM", () => setTimeout(() => response.end("done"), 200));
            console.log("stop me");
          });
          server.keepAliveTimeout = 600_000;
          process.once("SIGTERM", async () => {
            const sweep = setInterval(() => server.closeIdleConnections(), 100);
            await new Promise((resolve) => server.close(resolve));
            clearInterval(sweep);
            await messaging.close();
            await remove();
            await drop();
            await pool.end();
          });
          await messaging.start();
          server.listen(0, "127.0.0.1", () => console.log("listens on " + server.address().port));`,
          env(),
          request,
        );
        expect(await answer).toBe(200);
        expect(ended).toEqual({ code: 0, signal: null, err: "" });
      } finally {
        agent.destroy();
      }
    },
  );

  it.skipIf(postgres === undefined)(
    "with its broker away, what was to start later does not, and the process ends",
    async () => {
      const port = await freePort();
      const { err: _err, ...ended } = await program(
        `${prelude}${withPool}
      const router = createRouter(name).use(transaction(store)).use(inbox(store)).on(Happened, onHappened);
      const relay = createRelay(store, rabbitmqSender({ url }));
      process.once("SIGTERM", async () => {
        await Promise.all([router.stop(), relay.stop()]);
        await drop();
        await pool.end();
      });
      setTimeout(() => console.log("stop me"), 1000);
      if (await router.start(rabbitmqReceiver({ url }))) await relay.start();`,
        { ...env(), RABBITMQ: `amqp://127.0.0.1:${port}` },
      );
      expect(ended).toEqual({ code: 0, signal: null, out: "stop me\n" });
    },
  );

  it.skipIf(postgres === undefined)("with a broker that says nothing, the process ends at once", async () => {
    const silent = createServer();
    const held = new Set<Socket>();
    silent.on("connection", (socket) => held.add(socket));
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    const { port } = silent.address() as AddressInfo;
    try {
      const { err: _err, ...ended } = await program(
        `${prelude}${withPool}
        const messaging = createMessaging({
          service: name, store, sender: rabbitmqSender({ url, connectTimeoutMs: 120_000 }),
          receiver: rabbitmqReceiver({ url, connectTimeoutMs: 120_000 }), outbox: true, inbox: true,
        });
        messaging.consumer().on(Happened, onHappened);
        const sender = rabbitmqSender({ url, connectTimeoutMs: 120_000 });
        sender.connect(new AbortController().signal).catch(() => {});
        process.once("SIGTERM", async () => {
          await Promise.all([messaging.close(), sender.close()]);
          await drop();
          await pool.end();
        });
        setTimeout(() => console.log("stop me"), 1000);
        await messaging.start();`,
        { ...env(), RABBITMQ: `amqp://127.0.0.1:${port}` },
      );
      // A stop that waited for the client's own timeout would reach the limit of this test and be killed.
      expect(ended).toEqual({ code: 0, signal: null, out: "stop me\n" });
      expect(held.size).toBeGreaterThan(0);
    } finally {
      for (const socket of held) socket.destroy();
      silent.close();
    }
  });

  it.skipIf(postgres === undefined)("with its broker away, it is told, and the process ends", async () => {
    const port = await freePort();
    const { err, ...ended } = await program(
      `${prelude}${withPool}
      process.once("SIGTERM", async () => {
        await messaging.close();
        await drop();
        await pool.end();
      });
      const [sender, receiver] = [rabbitmqSender({ url }), rabbitmqReceiver({ url })];
      const messaging = createMessaging({ service: name, store, sender, receiver, outbox: true, inbox: true });
      messaging.consumer().on(Happened, onHappened);
      void messaging.start();
      setTimeout(() => console.log("stop me"), 1000);`,
      { ...env(), RABBITMQ: `amqp://127.0.0.1:${port}` },
    );
    expect(ended).toEqual({ code: 0, signal: null, out: "stop me\n" });
    expect(err).toMatch(
      /^postbox: transport\.lost transport=rabbitmq end=\w+ whose=.* error=".* cannot be reached: ECONNREFUSED"/m,
    );
  });

  it.skipIf(postgres === undefined)(
    "a handler that never ends is abandoned, which is told, and the process ends",
    async () => {
      const { err, ...ended } = await program(
        `${prelude}${withPool}
      const messaging = createMessaging({
        service: name, store, sender: rabbitmqSender({ url }), receiver: rabbitmqReceiver({ url }), outbox: true,
        routerOptions: { shutdownTimeoutMs: 200 },
      });
      messaging.consumer().on(Happened, async () => {
        handled();
        await new Promise(() => {});
      });
      await messaging.start();
      await store.transaction(() => messaging.publisher.publish(Happened, { a: 1 }));
      await once;
      await messaging.close();
      await remove();
      await drop();
      await pool.end();`,
        env(),
      );
      expect(ended).toEqual({ code: 0, signal: null, out: "" });
      expect(err).toMatch(/^postbox: router\.abandoned consumer=stop_\w+ ids=\["[\w-]+"\] error="\[stop-timeout\]/m);
    },
  );
});
