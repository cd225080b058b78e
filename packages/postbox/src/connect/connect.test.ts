import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeOn, describeOnEach } from "@postbox/testkit/servers";
import amqplib from "amqplib";
import { createConnection } from "mysql2/promise";
import { createOutbox, defineEvent, silent } from "postbox";
import { connectStore, connectTransport } from "postbox/connect";
import { rabbitmqReceiver } from "postbox/rabbitmq";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { loadDriver } from "./load-driver.js";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }) });

async function roundTrip(url: string): Promise<void> {
  const schema = `connect_${randomBytes(6).toString("hex")}`;
  const connected = await connectStore(url, { schema });
  if (connected.kind !== "postgres") throw new Error(`${connected.kind} from ${url}`);
  const { store, pool } = connected;
  try {
    await store.migrate();
    await store.transaction((tx) => createOutbox(store, { source: "/a" }).in(tx).publish(Placed, { n: 1 }));
    expect((await pool.query(`select type from ${schema}.outbox_pending`)).rows).toEqual([{ type: "shop.Placed" }]);
  } finally {
    await pool.query(`drop schema if exists ${schema} cascade`);
    await connected.close();
  }
}

describeOnEach("postgres", ({ url }) => {
  it("connectStore makes a store from a postgres URL", () => roundTrip(url));
  it("and from one that says postgresql", () => roundTrip(url.replace(/^postgres:/, "postgresql:")));
});

describeOn({ title: "PGlite" }, () => {
  it("connectStore makes a store inside of the process", () => roundTrip("pglite:"));
});

describeOnEach("mariadb", ({ url }) => {
  it.each(["mysql:", "mariadb:"])("connectStore makes a store from a URL with %s", async (scheme) => {
    const database = `connect_${randomBytes(6).toString("hex")}`;
    const admin = await createConnection(url);
    await admin.query(`CREATE DATABASE ${database}`);
    const own = new URL(url);
    own.pathname = `/${database}`;
    const connected = await connectStore(own.href.replace(/^mysql:/, scheme));
    try {
      if (connected.kind !== "mysql") throw new Error(`${connected.kind} from ${scheme}`);
      const { store } = connected;
      await store.migrate();
      await store.transaction((tx) => createOutbox(store, { source: "/a" }).in(tx).publish(Placed, { n: 1 }));
      expect((await store.admin.list()).messages).toMatchObject([{ type: "shop.Placed" }]);
    } finally {
      await connected.close();
      await admin.query(`DROP DATABASE ${database}`);
      await admin.end();
    }
  });

  it("a URL without a database is refused", async () => {
    await expect(connectStore(new URL("/", url).href)).rejects.toMatchObject({
      code: "option-invalid",
      path: "database",
    });
  });
});

describeOn({ title: "SQLite" }, () => {
  it.each(["sqlite:", "sqlite://"])("connectStore makes a store in the file of a %s URL", async (scheme) => {
    const folder = mkdtempSync(join(tmpdir(), "postbox-connect-"));
    const connected = await connectStore(`${scheme}${join(folder, "shop.db")}`);
    if (connected.kind !== "sqlite") throw new Error(`${connected.kind} from ${scheme}`);
    const { store, close } = connected;
    await store.migrate();
    await store.transaction((tx) => createOutbox(store, { source: "/a" }).in(tx).publish(Placed, { n: 1 }));
    expect((await store.admin.list()).messages).toMatchObject([{ type: "shop.Placed" }]);
    await close();
    expect(existsSync(join(folder, "shop.db"))).toBe(true);
    rmSync(folder, { recursive: true });
  });
});

describeOnEach("kafka", ({ url }) => {
  it("connectTransport makes a sender and a receiver on Kafka, and closes what it opened", async () => {
    const told: string[] = [];
    const kafka = { sender: { clientId: "one" }, receiver: { prefetch: 7 } };
    const transport = await connectTransport(url, { telemetry: ({ name }) => told.push(name), kafka });
    const receiver = transport.receiver("g");
    expect([transport.kind, receiver.name, receiver.health?.().status]).toEqual(["kafka", "kafka", "idle"]);
    const sender = transport.sender();
    await sender.connect?.(new AbortController().signal);
    expect([sender.health?.().status, told]).toEqual(["connected", ["transport.connected"]]);
    await transport.close();
    expect(sender.health?.().status).toBe("idle");
  });
});

describeOnEach("rabbitmq", ({ url }) => {
  it("connectTransport makes a sender and a receiver on RabbitMQ", async () => {
    const told: string[] = [];
    const transport = await connectTransport(url, { telemetry: ({ name }) => told.push(name) });
    const receiver = transport.receiver("q");
    expect([transport.kind, receiver.name, receiver.health?.().status]).toEqual(["rabbitmq", "rabbitmq", "idle"]);
    const sender = transport.sender();
    await sender.connect?.(new AbortController().signal);
    expect([told, sender.health?.().status]).toEqual([["transport.connected"], "connected"]);
    await transport.close();
  });

  it("gives each receiver options of its own, on top of those for all", async () => {
    const queue = `connect_${randomBytes(6).toString("hex")}`;
    const shared = { queueType: "classic", prefetch: 7 } as const;
    const transport = await connectTransport(url, { telemetry: silent, rabbitmq: { receiver: shared } });
    const made = (options: object) => rabbitmqReceiver({ url, queue, telemetry: silent, ...options });
    const subscription = { consumer: "ledger", events: [] };
    const client = await amqplib.connect(url);
    try {
      await transport.receiver(queue, { rabbitmq: { singleActiveConsumer: true } }).prepare?.(subscription);
      await made({ ...shared, singleActiveConsumer: true }).prepare?.(subscription);
      for (const other of [made(shared), made({ singleActiveConsumer: true }), transport.receiver(queue)]) {
        await expect(other.prepare?.(subscription)).rejects.toMatchObject({ code: "topology-differs" });
      }
      const unknown = { rabbitmq: { singleActiveConsumers: true } } as object;
      expect(() => transport.receiver(queue, unknown)).toThrow("did you mean");
    } finally {
      const channel = await client.createChannel();
      for (const name of [queue, `${queue}.parked`]) await channel.deleteQueue(name);
      for (let ms = 64; ms <= 65_536; ms *= 2) await channel.deleteQueue(`${queue}.wait.${ms}`);
      await client.close();
      await transport.close();
    }
  });
});

describe("connect", () => {
  it("makes a store and a broker in memory", async () => {
    const { kind, store, close } = await connectStore("memory:");
    expect([kind, store.name]).toEqual(["memory", "memory"]);
    await close();
    const transport = await connectTransport("memory:");
    expect([transport.kind, transport.sender().name, transport.receiver("q").name]).toEqual(Array(3).fill("memory"));
    const forRabbitmq = { rabbitmq: { singleActiveConsumer: true } };
    expect(transport.receiver("q", forRabbitmq).name).toBe("memory");
    expect(() => transport.receiver("q", { rabitmq: {} } as object)).toThrow("did you mean 'rabbitmq'?");
    await transport.close();
  });

  it.each(["mssql://root:secret@host/db", "secret", "", "POSTGRES", "postgresx://secret"])(
    "refuses %j without repeating it",
    async (url) => {
      for (const attempt of [connectStore(url), connectTransport(url)]) {
        const error: Error = await attempt.then(
          () => expect.fail("was accepted"),
          (refusal) => refusal,
        );
        expect(error).toMatchObject({ code: "url-unsupported" });
        expect(error.message).not.toContain("secret");
      }
    },
  );

  it("says which driver is missing", async () => {
    const load = () => import("a-driver-that-nobody-has" as string);
    await expect(loadDriver("a-driver", load)).rejects.toThrow("npm install a-driver");
  });
});
