import { createServer, type Server, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { describeOnEach } from "../../vitest/describe-on.js";
import { rabbitmq } from "./rabbitmq.js";

/** A Connection.Start frame as RabbitMQ writes it. */
function connectionStart(properties: Record<string, string>): Buffer {
  const shortText = (text: string) => Buffer.from([text.length, ...Buffer.from(text)]);
  const withLength = (bytes: Buffer) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    return Buffer.concat([length, bytes]);
  };
  const flag = Buffer.concat([shortText("basic.nack"), Buffer.from("t\x01", "latin1")]);
  const capabilities = Buffer.concat([shortText("capabilities"), Buffer.from("F"), withLength(flag)]);
  const texts = Object.entries(properties).map(([name, text]) =>
    Buffer.concat([shortText(name), Buffer.from("S"), withLength(Buffer.from(text))]),
  );
  const table = withLength(Buffer.concat([capabilities, ...texts]));
  const logins = [withLength(Buffer.from("PLAIN")), withLength(Buffer.from("en_US"))];
  const method = Buffer.concat([Buffer.from([0, 10, 0, 10, 0, 9]), table, ...logins]);
  return Buffer.concat([Buffer.from([1, 0, 0]), withLength(method), Buffer.from([0xce])]);
}

async function serverThat(answers: (socket: Socket) => void): Promise<string> {
  const server: Server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => answers(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
  });
  const address = server.address();
  return `amqp://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
}

test("reads the version out of the broker's greeting, even if it comes in pieces", async () => {
  const frame = connectionStart({ product: "RabbitMQ", version: "4.2.1" });
  const url = await serverThat((socket) => {
    socket.write(frame.subarray(0, 5));
    setTimeout(() => socket.write(frame.subarray(5, 40)), 10);
    setTimeout(() => socket.write(frame.subarray(40)), 20);
  });
  expect(await rabbitmq.probe(url)).toBe("4.2.1");
});

test("takes another kind of server for what it is", async () => {
  const web = await serverThat((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
  await expect(rabbitmq.probe(web)).rejects.toThrow("does not speak AMQP 0-9-1");
  const mute = await serverThat((socket) => socket.end());
  await expect(rabbitmq.probe(mute)).rejects.toThrow("without an AMQP answer");
});

test("does not wait for a server that says nothing", async () => {
  const silent = await serverThat(() => {});
  await expect(rabbitmq.probe(silent)).rejects.toThrow("no AMQP answer within");
});

describeOnEach("rabbitmq", ({ url, version }) => {
  test("asks a real broker", async () => {
    expect(await rabbitmq.probe(url)).toBe(version);
  });
});
