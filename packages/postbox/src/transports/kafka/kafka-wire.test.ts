import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeOnEach, kafkaProgram } from "@postbox/testkit/servers";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createMessage } from "../../message/message.js";
import type { Delivery } from "../../transport.js";
import { kafkaReceiver, kafkaSender } from "./index.js";
import { partitionOf } from "./murmur2.js";

describeOnEach("kafka", ({ url }) => {
  const server = new URL(url.replace("kafka", "http")).host;
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "postbox-wire-"));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  /** Runs a program of Kafka's own distribution. */
  async function run(main: string, args: readonly string[], input = ""): Promise<string> {
    const { file, args: all } = kafkaProgram(folder, main, args);
    const child = spawn(file, all, { stdio: ["pipe", "pipe", "pipe"] });
    let [output, errors] = ["", ""];
    child.stdout.on("data", (chunk) => {
      output += chunk;
    });
    child.stderr.on("data", (chunk) => {
      errors += chunk;
    });
    child.stdin.end(input);
    const code = await new Promise((resolve) => child.once("close", resolve));
    if (code !== 0) throw new Error(`${main} ended with ${code}: ${errors}`);
    return output;
  }

  async function topicOf(partitions: number): Promise<{ topic: string; type: string }> {
    const topic = `wire-${randomUUID()}`;
    const type = `${topic}.Placed`;
    await using sender = kafkaSender({ url, create: { partitions } });
    await sender.setup([{ topic, type }]);
    return { topic, type };
  }

  it("Kafka's own consumer reads keys, headers and bytes", async () => {
    const { topic, type } = await topicOf(1);
    const message = createMessage({
      id: "1",
      source: "/orders",
      type,
      topic,
      key: "order-größe",
      time: "2026-01-31T12:00:00Z",
      extensions: { correlationid: "c-1" },
      headers: { "x-source": "web" },
      data: Buffer.from('{"größe":1}'),
    });
    await using sender = kafkaSender({ url });
    await sender.send([message], () => {}, new AbortController().signal);
    const print = ["headers", "key", "partition"].flatMap((what) => ["--property", `print.${what}=true`]);
    const output = await run("org.apache.kafka.tools.consumer.ConsoleConsumer", [
      ...["--bootstrap-server", server, "--topic", topic, "--from-beginning", "--max-messages", "1"],
      ...print,
    ]);
    const [partition, headers = "", key, value] = output.trim().split("\t");
    expect([partition, key, value]).toEqual(["Partition:0", "order-größe", '{"größe":1}']);
    expect(headers.split(",").sort()).toEqual(
      [
        "ce_specversion:1.0",
        "ce_id:1",
        "ce_source:/orders",
        `ce_type:${type}`,
        "ce_time:2026-01-31T12:00:00Z",
        "ce_partitionkey:order-größe",
        "ce_correlationid:c-1",
        "content-type:application/json",
        "x-source:web",
      ].sort(),
    );
  });

  it("Kafka's own producer writes events, and chooses the same partitions for their keys", async () => {
    const { topic, type } = await topicOf(7);
    const keys = Array.from({ length: 20 }, (_, n) => `order-${n}-ü`);
    const lines = keys.map((key, n) => {
      const headers = `ce_specversion:1.0,ce_id:${n},ce_source:/java,ce_type:${type},content-type:application/json`;
      return `${headers}\t${key}\t{"n":${n}}\n`;
    });
    const properties = ["parse.headers=true", "parse.key=true"].flatMap((each) => ["--property", each]);
    await run(
      "org.apache.kafka.tools.ConsoleProducer",
      ["--bootstrap-server", server, "--topic", topic, ...properties],
      lines.join(""),
    );
    const deliveries = await take({ topic, type }, keys.length);
    for (const { message, origin } of deliveries) {
      const { key = "" } = message;
      expect(keys.indexOf(key)).toBe(Number(message.id));
      expect(String(message.data)).toBe(`{"n":${message.id}}`);
      expect(origin?.partition).toBe(`${topic}/${partitionOf(Buffer.from(key), 7)}`);
    }
  });

  it("reads what Kafka's own producer has compressed", async () => {
    const { topic, type } = await topicOf(1);
    const headers = `ce_specversion:1.0,ce_id:1,ce_source:/java,ce_type:${type}`;
    await run(
      "org.apache.kafka.tools.ConsoleProducer",
      [
        ...["--bootstrap-server", server, "--topic", topic, "--compression-codec", "gzip"],
        ...["--property", "parse.headers=true"],
      ],
      `${headers}\t${"x".repeat(10_000)}\n`,
    );
    const [delivery] = await take({ topic, type }, 1);
    expect(delivery?.message.data).toHaveLength(10_000);
  });

  async function take(event: { topic: string; type: string }, count: number): Promise<readonly Delivery[]> {
    const deliveries: Delivery[] = [];
    const stopping = new AbortController();
    const deliver = async (delivery: Delivery) => {
      deliveries.push(delivery);
      await delivery.ack();
    };
    const receiver = kafkaReceiver({ url });
    const running = receiver.receive({ consumer: `c-${randomUUID()}`, events: [event], deliver }, stopping.signal);
    await expect.poll(() => deliveries.length).toBe(count);
    stopping.abort();
    await running;
    return deliveries;
  }
});
