import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../free-port.js";
import { fetchKafka, kafkaProgram } from "../kafka-programs.js";
import { writeKafkaProperties } from "../recipes/kafka.js";
import { runCommand } from "../run-command.js";
import type { Service } from "../service.js";

/** A server that is busy with other tests may be slow; a missing one fails at once. */
const timeoutMs = 10_000;

export const kafka: Service = {
  name: "kafka",
  title: "Kafka",
  defaultUrl: "kafka://127.0.0.1:9092",
  variable: "POSTBOX_TEST_KAFKA_URL",
  probe: kafkaVersion,
  own: { how: "Maven and java", start: startKafka },
};

/**
 * Starts a broker as a daemon that outlives this process, as Debian's services do. Its data are in a temporary folder,
 * with its log; each start begins with an empty one.
 */
async function startKafka(): Promise<void> {
  await fetchKafka();
  const folder = mkdtempSync(join(tmpdir(), "postbox-kafka-"));
  const properties = writeKafkaProperties(folder, { port: 9092, nodeId: 1, controllers: [await freePort()] });
  const format = kafkaProgram(folder, "kafka.tools.StorageTool", properties.formatArguments);
  await runCommand(format.file, format.args, 60_000);
  const { file, args } = kafkaProgram(folder, "kafka.Kafka", [properties.file]);
  const log = openSync(join(folder, "log"), "a");
  spawn(file, [...args], { cwd: folder, detached: true, stdio: ["ignore", log, log] }).unref();
  closeSync(log);
}

/**
 * Asks a broker for its version, which follows from the requests that it knows: it does not tell its release. Rejects
 * until the broker knows a controller, because before that it creates no topic.
 */
export async function kafkaVersion(url: string): Promise<string> {
  const { hostname, port } = new URL(url.replace(/^kafka/, "http"));
  const socket = connect({ host: hostname, port: Number(port || 9092) });
  socket.setTimeout(timeoutMs, () => socket.destroy(new Error(`no answer of Kafka within ${timeoutMs} ms`)));
  const chunks = socket[Symbol.asyncIterator]();
  let received = Buffer.alloc(0);
  const ask = async (api: number, version: number, body: Buffer): Promise<Buffer> => {
    const head = Buffer.from([0, 0, 0, 0, 0, api, 0, version, 0, 0, 0, 1, 0xff, 0xff]);
    head.writeInt32BE(head.length - 4 + body.length);
    socket.write(Buffer.concat([head, body]));
    while (received.length < 4 || received.length < 4 + received.readInt32BE(0)) {
      const { value, done } = await chunks.next();
      if (done) throw new Error("the server closed the connection without an answer of Kafka");
      received = Buffer.concat([received, value]);
    }
    const size = 4 + received.readInt32BE(0);
    // After the size and the number of the request.
    const answer = received.subarray(8, size);
    received = received.subarray(size);
    return answer;
  };
  try {
    const apis = await ask(18, 0, Buffer.alloc(0));
    if (apis.readInt16BE(0) !== 0) throw new Error(`Kafka refused to tell its version: error ${apis.readInt16BE(0)}`);
    // A listener with authentication answers nothing else.
    const none = Buffer.from([0, 0, 0, 0]);
    const ready = await ask(3, 1, none).catch(() => undefined);
    if (ready !== undefined && !hasController(ready)) throw new Error("Kafka has no controller yet");
    return releaseOf(apis);
  } finally {
    socket.destroy();
  }
}

/** Reads a Metadata response of version 1: the brokers, then the number of the controller. */
function hasController(metadata: Buffer): boolean {
  const brokers = metadata.readInt32BE(0);
  let at = 4;
  for (let broker = 0; broker < brokers; broker++) {
    at += 4;
    at += 2 + metadata.readInt16BE(at) + 4;
    at += 2 + Math.max(0, metadata.readInt16BE(at));
  }
  return brokers > 0 && metadata.readInt32BE(at) >= 0;
}

/** Reads an ApiVersions response of version 0: for each request its number, and its lowest and highest version. */
function releaseOf(apis: Buffer): string {
  const lowest = new Map<number, number>();
  for (let at = 6; at + 6 <= apis.length; at += 6) lowest.set(apis.readInt16BE(at), apis.readInt16BE(at + 2));
  // 4.1 has offsets of share groups. 4.0 has removed the oldest versions of Fetch.
  if (lowest.has(91)) return "4.1 or later";
  return (lowest.get(1) ?? 0) >= 4 ? "4.0" : "3.x or earlier";
}
