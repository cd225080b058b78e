import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer, type Server } from "node:tls";
import { inspect } from "node:util";
import { canRunKafka, type DisposableServer, disposable, freePort, kafkaProgram } from "@postbox/testkit/servers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { kafkaPasswords } from "../../../fixtures/kafka-broker.js";
import { createMessage } from "../../message/message.js";
import { silent } from "../../telemetry/console.js";
import { type KafkaCredentials, type KafkaSenderOptions, kafkaReceiver, kafkaSender } from "./index.js";

const never = new AbortController().signal;
const plain = "org.apache.kafka.common.security.plain.PlainLoginModule";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "postbox-security-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Makes a topic, sends a message to it, and receives it. */
async function roundTrip(options: KafkaSenderOptions): Promise<string[]> {
  const topic = `secure-${randomUUID()}`;
  const event = { topic, type: `${topic}.A` };
  await using sender = kafkaSender({ ...options, telemetry: silent });
  await sender.setup([event]);
  const message = createMessage({ id: "m1", source: "/s", ...event });
  await sender.send([message], () => {}, never);
  const seen: string[] = [];
  const stopping = new AbortController();
  const deliver = async ({ message: { id }, ack }: { message: { id: string }; ack(): Promise<void> }) => {
    seen.push(id);
    await ack();
    stopping.abort();
  };
  const receiver = kafkaReceiver({ ...options, telemetry: silent });
  await receiver.receive({ consumer: topic, events: [event], deliver }, stopping.signal);
  return seen;
}

describe.skipIf(!canRunKafka())("a Kafka that authenticates its clients", () => {
  let server: DisposableServer;
  beforeAll(async () => {
    server = await disposable("kafka", kafkaPasswords);
  });
  // Registered before the hooks of the broker, because hooks run in reverse order.
  afterAll(() => server?.stop());
  const withUser = () => server.url.replace("kafka://", "kafka://shop:s%3Acr%40t@");

  it("accepts a user and a password of the URL, or of a function that is asked each time", async () => {
    expect(await roundTrip({ url: withUser() })).toEqual(["m1"]);
    let asked = 0;
    const credentials = async (): Promise<KafkaCredentials> => {
      asked++;
      return { username: "shop", password: "s:cr@t" };
    };
    expect(await roundTrip({ url: server.url, credentials })).toEqual(["m1"]);
    expect(asked).toBeGreaterThan(1);
  });

  it.each(["scram-sha-256", "scram-sha-512"] as const)("accepts %s", async (mechanism) => {
    const user = `user-${mechanism}`;
    const { host } = new URL(server.url.replace("kafka", "http"));
    const config = join(folder, "client.properties");
    const login = `${plain} required username="admin" password="admin";`;
    const lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", `sasl.jaas.config=${login}`];
    execFileSync("tee", [config], { input: lines.join("\n"), stdio: ["pipe", "ignore", "ignore"] });
    const { file, args } = kafkaProgram(folder, "kafka.admin.ConfigCommand", [
      ...["--bootstrap-server", host, "--command-config", config, "--alter"],
      ...["--entity-type", "users", "--entity-name", user],
      ...["--add-config", `${mechanism.toUpperCase()}=[password=secret]`],
    ]);
    execFileSync(file, [...args], { stdio: "ignore" });
    const credentials = () => ({ username: user, password: "secret" });
    await expect.poll(() => roundTrip({ url: server.url, mechanism, credentials }).catch(String)).toEqual(["m1"]);
  });

  it("accepts a token", async () => {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const now = Math.floor(Date.now() / 1000);
    const token = `${part({ alg: "none" })}.${part({ sub: "shop", iat: now - 10, exp: now + 3600 })}.`;
    const credentials = () => ({ token });
    expect(await roundTrip({ url: server.url, mechanism: "oauthbearer", credentials })).toEqual(["m1"]);
  });
});

describe.skipIf(!canRunKafka())("a Kafka behind TLS", () => {
  let [server, proxy]: [DisposableServer?, Server?] = [];
  let [port, certificate] = [0, ""];
  beforeAll(async () => {
    port = await freePort();
    const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
    const name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"];
    const files = ["-keyout", key, "-out", cert];
    execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", ...files, ...name], { stdio: "ignore" });
    certificate = readFileSync(cert, "utf8");
    // The broker names the proxy as its address, so that every connection is encrypted.
    server = await disposable("kafka", `advertised.listeners=CLIENTS://127.0.0.1:${port}`);
    const to = server.port;
    proxy = createServer({ key: readFileSync(key), cert: certificate }, (socket) => {
      const onward = connect(to, "127.0.0.1");
      socket.on("error", () => {});
      onward.on("error", () => {});
      socket.pipe(onward).pipe(socket);
    });
    await new Promise<void>((resolve) => proxy?.listen(port, "127.0.0.1", resolve));
  });
  afterAll(async () => {
    proxy?.close();
    await server?.stop();
  });

  it("is reached with its authority", async () => {
    expect(await roundTrip({ url: `kafkas://127.0.0.1:${port}`, tls: { ca: certificate } })).toEqual(["m1"]);
  });

  it("is refused for good without it", async () => {
    await using sender = kafkaSender({ url: `kafkas://127.0.0.1:${port}`, telemetry: silent });
    const error = await sender.connect?.(never).catch((thrown: unknown) => thrown);
    expect(error, inspect(error)).toMatchObject({ name: "ConfigError", code: "transport-refused" });
  });
});
