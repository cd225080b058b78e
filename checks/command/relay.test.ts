import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "@postbox/testkit/servers";
import amqp from "amqplib";
import { Kafka, logLevel } from "kafkajs";
import pg from "pg";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { type PackedCommand, packedCommand } from "./packed-command.js";

const urlOf = (service: string) => inject("servers").found.find((server) => server.service === service)?.url;
const [database, broker] = [urlOf("postgres"), urlOf("rabbitmq")];
const runs = Number(process.env.POSTBOX_TEST_COMMAND_RUNS ?? 3);

/** The relay as a process between real servers, with messages published in plain SQL. */
const onServers = it.runIf(database !== undefined && broker !== undefined);

const name = `command_${randomBytes(6).toString("hex")}`;
const canary = `canary${randomBytes(6).toString("hex")}`;
const env = { POSTBOX_DATABASE_URL: database ?? "", POSTBOX_BROKER_URL: broker ?? "", POSTBOX_SCHEMA: name };
let command: PackedCommand;
let pool: pg.Pool;
let channel: amqp.Channel;
let connection: amqp.ChannelModel;
const received: { readonly id: string; readonly text: string }[] = [];

beforeAll(async () => {
  if (database === undefined || broker === undefined) return;
  command = await packedCommand();
  pool = new pg.Pool({ connectionString: database, max: 2 });
  connection = await amqp.connect(broker);
  channel = await connection.createChannel();
  await channel.assertExchange(name, "topic", { durable: true });
  await channel.assertQueue(name, { durable: true, autoDelete: false });
  await channel.bindQueue(name, name, "#");
  await channel.consume(name, (message) => {
    if (message === null) return;
    received.push({ id: String(message.properties.messageId), text: message.content.toString() });
    channel.ack(message);
  });
  expect((await command.run(["migrate"], { env })).code).toBe(0);
});

afterAll(async () => {
  command?.remove();
  await pool?.query(`DROP SCHEMA IF EXISTS ${name} CASCADE`);
  await pool?.end();
  await channel?.deleteQueue(name);
  await channel?.deleteExchange(name);
  await connection?.close();
});

/** Publishes as a program without TypeScript does. Returns the ids. */
async function publish(count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let at = 0; at < count; at++) {
    const data = JSON.stringify({ at, secret: canary });
    const { rows } = await pool.query(`SELECT ${name}.publish($1, $2, key => $3) AS id`, [
      `${name}.Counted`,
      data,
      `key-${at % 10}`,
    ]);
    ids.push(String(rows[0].id));
  }
  return ids;
}

async function untilReceived(ids: readonly string[]): Promise<void> {
  const missing = () => ids.filter((id) => !received.some((message) => message.id === id));
  await expect.poll(() => missing().length).toBe(0);
}

onServers("sends what SQL has published, tells its health, and ends by itself", async () => {
  const port = await freePort();
  const args = ["relay", "--poll-interval", "50ms", "--health-port", String(port), "--verbose", "--log", "json"];
  const relay = command.start(args, { env });
  await relay.said("relay: started");
  const ids = await publish(20);
  await untilReceived(ids);
  const answer = async (path: string) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`);
    return [response.status, await response.json()] as const;
  };
  expect(await answer("/live")).toEqual([200, { live: true }]);
  expect(await answer("/ready")).toEqual([200, { ready: true, problems: [] }]);
  expect((await answer("/metrics"))[0]).toBe(404);
  // As `timeout` does, which passes a signal on to its child and to the group.
  relay.process.kill("SIGTERM");
  relay.process.kill("SIGTERM");
  const { code, out, err } = await relay.ended;
  expect([code, out, err.includes("relay: stopped"), err.includes(canary)]).toEqual([0, "", true, false]);
  for (const line of err.split("\n").filter((each) => each.startsWith("{")))
    expect(JSON.parse(line).level).toBeDefined();
});

onServers("loses nothing, however often relays are killed or stopped", async () => {
  const all: string[] = [];
  for (let run = 0; run < runs; run++) {
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      const relay = command.start(["relay", "--poll-interval", "50ms", "--lease", "3s", "--publish-timeout", "900ms"], {
        env,
      });
      const publishing = publish(30);
      await relay.said("relay: started");
      // Anywhere in the middle of its work.
      await sleep(Math.random() * 300);
      relay.process.kill(signal);
      const { code } = await relay.ended;
      expect(code).toBe(signal === "SIGKILL" ? null : 0);
      all.push(...(await publishing));
    }
  }
  const last = command.start(["relay", "--poll-interval", "50ms", "--lease", "3s", "--publish-timeout", "900ms"], {
    env,
  });
  await untilReceived(all);
  last.process.kill("SIGTERM");
  expect((await last.ended).code).toBe(0);
});

onServers("parks what cannot be sent, and sends it again once that is mended", async () => {
  const type = `${name}_missing.Placed`;
  await pool.query(`SELECT ${name}.publish($1, '{}', key => 'p')`, [type]);
  const relay = command.start(["relay", "--poll-interval", "50ms", "--max-attempts", "2"], { env });
  await relay.said("message.parked");
  const parked = await command.run(["parked", "--json"], { env });
  const [{ id, lastError }] = JSON.parse(parked.out).messages;
  expect(lastError).toContain("[unroutable]");
  await channel.assertExchange(`${name}_missing`, "topic", { durable: true });
  await channel.bindQueue(name, `${name}_missing`, "#");
  const retried = await command.run(["retry", "--all", "--yes", "--by", "ann", "--reason", "bound"], { env });
  expect([retried.code, retried.out]).toEqual([0, "1 of 1 message will be sent again.\n"]);
  await untilReceived([id]);
  relay.process.kill("SIGTERM");
  expect((await relay.ended).code).toBe(0);
  await channel.deleteExchange(`${name}_missing`);
});

const kafka = urlOf("kafka");
it.runIf(database !== undefined && kafka !== undefined)("sends to Kafka, too", async () => {
  const topic = `${name}_kafka`;
  const client = new Kafka({ brokers: [new URL(kafka as string).host], logLevel: logLevel.NOTHING });
  const [admin, consumer] = [client.admin(), client.consumer({ groupId: topic })];
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 3 }], waitForLeaders: true });
  const values = new Map<string, string>();
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ message }) => void values.set(String(message.headers?.ce_id), String(message.value)),
  });
  const relay = command.start(["relay", "--broker", kafka as string, "--poll-interval", "50ms"], { env });
  try {
    const published: string[] = [];
    for (let at = 0; at < 10; at++) {
      const { rows } = await pool.query(`SELECT ${name}.publish($1, $2) AS id`, [`${topic}.Counted`, `{"at":${at}}`]);
      published.push(String(rows[0].id));
    }
    await expect.poll(() => published.filter((id) => !values.has(id))).toEqual([]);
  } finally {
    relay.process.kill("SIGTERM");
    expect((await relay.ended).code).toBe(0);
    await consumer.disconnect();
    await admin.deleteTopics({ topics: [topic] });
    await admin.disconnect();
  }
});

onServers("ends at once if no retry can help", async () => {
  const refused = new URL(broker as string);
  refused.username = "nobody";
  refused.password = canary;
  const wrong = await command.run(["relay", "--broker", refused.href], { env });
  expect([wrong.code, wrong.err.includes("[transport-refused]")]).toEqual([4, true]);
  const missing = await command.run(["relay", "--schema", "nothing_here"], { env });
  expect([missing.code, missing.err.includes("postbox migrate")]).toEqual([5, true]);
  for (const { out, err } of [wrong, missing]) expect(out + err).not.toMatch(new RegExp(`${canary}|^ +at `, "m"));
});
