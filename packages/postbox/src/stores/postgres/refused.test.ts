import { randomUUID } from "node:crypto";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { recordingSender, telemetryLog } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import pg from "pg";
import {
  constant,
  createMessaging,
  createOutbox,
  createPublisher,
  createRelay,
  createRouter,
  defineEvent,
  durableInbox,
  inbox,
  transaction,
} from "postbox";
import { memoryBroker } from "postbox/memory";
import { createSchedule } from "postbox/schedule";
import { expect, it, onTestFinished } from "vitest";
import { postgresStore } from "./index.js";

const Happened = defineEvent({
  type: "test.Happened",
  schema: { "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) } },
});

/** A proxy between client and server. Once closed, it refuses every connection. */
async function breakableProxy(target: URL) {
  const sockets = new Set<Socket>();
  const proxy = createServer((near) => {
    const far = connect(Number(target.port), target.hostname);
    near.pipe(far).pipe(near);
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => {});
    }
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const url = new URL(target);
  url.port = String((proxy.address() as AddressInfo).port);
  return {
    url: url.href,
    close() {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => proxy.close(resolve));
    },
  };
}

/** A server that asks every client for a password by SCRAM, and knows none. */
async function passwordServer(): Promise<string> {
  const authentication = (kind: number, text: string) => {
    const head = Buffer.from([0x52, 0, 0, 0, 8 + text.length, 0, 0, 0, kind]);
    return Buffer.concat([head, Buffer.from(text)]);
  };
  const server = createServer((socket) => {
    const answers = [authentication(10, "SCRAM-SHA-256\0\0"), authentication(11, "r=nonce,s=c2FsdA==,i=4096")];
    socket.on("data", () => socket.write(answers.shift() ?? ""));
    socket.on("error", () => {});
    onTestFinished(() => {
      socket.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
  });
  return `postgres://postgres@127.0.0.1:${(server.address() as AddressInfo).port}/postgres`;
}

it("nothing starts without the password that the server asks for", async () => {
  const pool = new pg.Pool({ connectionString: await passwordServer(), max: 3 });
  onTestFinished(() => pool.end());
  const store = postgresStore({ pool });
  const [{ telemetry }, broker] = [telemetryLog(), memoryBroker()];
  const refused = { code: "store-refused", message: expect.stringMatching(/check user, password and database/) };
  const relay = createRelay(store, recordingSender(), { telemetry });
  await expect(relay.start()).rejects.toMatchObject(refused);
  const router = createRouter("billing", { telemetry }).use(transaction(store)).use(inbox(store));
  router.on(Happened, async () => {});
  await expect(router.start(broker.receiver())).rejects.toMatchObject(refused);
  const daily = { everyMs: 86_400_000, message: Happened.message({}) };
  const schedule = createSchedule(createOutbox(store, { source: "/test" }), { daily }, { telemetry });
  await expect(schedule.start()).rejects.toMatchObject({ code: "store-refused" });
});

describeOnEach("postgres", ({ url }) => {
  function storeAt(change: (url: URL) => void, schema = `refused_${randomUUID().slice(0, 8)}`) {
    const target = new URL(url);
    change(target);
    const pool = new pg.Pool({ connectionString: target.href, max: 3 });
    pool.on("error", () => {});
    onTestFinished(() => pool.end());
    return postgresStore({ pool, schema });
  }
  const strangers = {
    "a database that does not exist": (target: URL) => {
      target.pathname = "/no_such_database";
    },
    "a user that does not exist": (target: URL) => {
      target.username = "nobody_here";
    },
  };

  for (const [title, change] of Object.entries(strangers)) {
    it(`a relay does not start with ${title}, and says so`, async () => {
      const log = telemetryLog();
      const relay = createRelay(storeAt(change), recordingSender(), { telemetry: log.telemetry });
      await expect(relay.start()).rejects.toMatchObject({
        code: "store-refused",
        message: expect.stringMatching(/refuses the connection: .*; check user, password and database of the pool$/),
      });
      expect(log.of("relay.failed")).toMatchObject([{ retryInMs: Number.POSITIVE_INFINITY }]);
      await expect(relay.stop()).rejects.toMatchObject({ code: "store-refused" });
    });
  }

  it("what works on a pool that was ended ends, too, and says in which order to stop", async () => {
    const [{ telemetry }, broker] = [telemetryLog(), memoryBroker()];
    const pool = new pg.Pool({ connectionString: url, max: 3 });
    const store = postgresStore({ pool, schema: `closed_${randomUUID().slice(0, 8)}` });
    await pool.end();
    const closed = {
      code: "store-closed",
      message: expect.stringMatching(/stop or close everything that uses the store first/),
    };
    const relay = createRelay(store, recordingSender(), { telemetry });
    await expect(relay.run()).rejects.toMatchObject(closed);
    const router = createRouter("billing", { telemetry }).use(transaction(store)).use(inbox(store));
    router.on(Happened, async () => {});
    await expect(router.run(broker.receiver())).rejects.toMatchObject(closed);
    const daily = { everyMs: 86_400_000, message: Happened.message({}) };
    const schedule = createSchedule(createOutbox(store, { source: "/test" }), { daily }, { telemetry });
    await expect(schedule.run()).rejects.toMatchObject(closed);
  });

  it("a server that goes away is unavailable in every event, whether it breaks connections or takes none", async () => {
    const log = telemetryLog();
    const proxy = await breakableProxy(new URL(url));
    const pool = new pg.Pool({ connectionString: proxy.url, max: 3 });
    onTestFinished(() => pool.end());
    const store = postgresStore({ pool, schema: `away_${randomUUID().slice(0, 8)}` });
    await store.migrate();
    const broker = memoryBroker();
    const messaging = createMessaging({
      service: "away",
      store,
      sender: broker.sender(),
      receiver: broker.receiver(),
      outbox: true,
      inbox: true,
      relayOptions: { backoff: constant(5) },
      telemetry: log.telemetry,
    });
    messaging.consumer("billing").on(Happened, async () => {});
    await messaging.start();
    await proxy.close();
    await createPublisher(broker.sender(), { source: "/test" }).publish(Happened, {});
    await log.until("router.failed");
    await log.until("relay.failed", 5);
    for (const { error } of [...log.of("relay.failed"), ...log.of("router.failed")]) {
      expect(error).toMatchObject({ code: "store-unavailable" });
      expect(error.message).toMatch(/^\[store-unavailable\] postgres cannot be reached: (?!\[)/);
    }
    expect(log.of("router.failed")[0]?.retryInMs).toBeGreaterThan(0);
    await messaging.close();
  });

  it("a server that goes away before a failed message is set aside is unavailable, too", async () => {
    const log = telemetryLog();
    const proxy = await breakableProxy(new URL(url));
    const pool = new pg.Pool({ connectionString: proxy.url, max: 3 });
    onTestFinished(() => pool.end());
    const store = postgresStore({ pool, schema: `away_${randomUUID().slice(0, 8)}` });
    await store.migrate();
    const broker = memoryBroker();
    const router = createRouter("billing", { backoff: constant(5), telemetry: log.telemetry });
    router
      .use(transaction(store))
      .use(inbox(store))
      .on(Happened, async () => {
        await proxy.close();
        throw new Error("no such customer");
      });
    await router.start(broker.receiver());
    await createPublisher(broker.sender(), { source: "/test" }).publish(Happened, {});
    await log.until("router.failed", 2);
    for (const { error } of log.of("router.failed")) {
      expect(error).toMatchObject({ code: "store-unavailable" });
    }
    await router.stop();
  });

  it("no consumer with an inbox, and no schedule, starts with a database that does not exist", async () => {
    const store = storeAt(strangers["a database that does not exist"]);
    const [{ telemetry }, broker] = [telemetryLog(), memoryBroker()];
    for (const remembering of [inbox(store), durableInbox(store)]) {
      const router = createRouter("billing", { telemetry }).use(transaction(store)).use(remembering);
      router.on(Happened, async () => {});
      await expect(router.start(broker.receiver())).rejects.toMatchObject({ code: "store-refused" });
      await expect(router.stop()).rejects.toMatchObject({ code: "store-refused" });
    }
    const outbox = createOutbox(store, { source: "/test" });
    const daily = { everyMs: 86_400_000, message: Happened.message({}) };
    const schedule = createSchedule(outbox, { daily }, { telemetry });
    await expect(schedule.start()).rejects.toMatchObject({ code: "store-refused" });
    await expect(schedule.stop()).rejects.toMatchObject({ code: "store-refused" });
  });

  it("nothing starts without the tables", async () => {
    const store = storeAt(() => {});
    const [{ telemetry }, broker] = [telemetryLog(), memoryBroker()];
    const relay = createRelay(store, broker.sender(), { telemetry });
    await expect(relay.start()).rejects.toMatchObject({ code: "schema-missing" });
    const router = createRouter("billing", { telemetry })
      .use(transaction(store))
      .use(inbox(store))
      .on(Happened, async () => {});
    await expect(router.start(broker.receiver())).rejects.toMatchObject({ code: "schema-missing" });
    await expect(router.stop()).rejects.toMatchObject({ code: "schema-missing" });
    await expect(relay.stop()).rejects.toMatchObject({ code: "schema-missing" });
  });

  it("start resolves when the database was reached, also where it was away at first", async () => {
    const schema = `refused_${randomUUID().slice(0, 8)}`;
    const store = storeAt(() => {}, schema);
    await store.migrate();
    const owner = new pg.Pool({ connectionString: url, max: 1 });
    onTestFinished(async () => {
      await owner.query(`DROP SCHEMA "${schema}" CASCADE`);
      await owner.end();
    });
    const log = telemetryLog();
    let away = 3;
    const box = store.box("outbox");
    const late = {
      ...store,
      box: () => ({
        ...box,
        renew: (...args: Parameters<typeof box.renew>) =>
          away-- > 0 ? Promise.reject(new Error("connect ECONNREFUSED")) : box.renew(...args),
      }),
    };
    const relay = createRelay(late, recordingSender(), { telemetry: log.telemetry, backoff: () => 5 });
    await relay.start();
    expect(away).toBeLessThan(0);
    expect(log.of("relay.failed").length).toBeGreaterThanOrEqual(3);
    await relay.stop();
  });
});
