import { connect } from "node:net";
import type { Service } from "../service.js";

/** A server that is busy with other tests may be slow; a missing one fails at once. */
const timeoutMs = 10_000;

export const rabbitmq: Service = {
  name: "rabbitmq",
  title: "RabbitMQ",
  defaultUrl: "amqp://guest:guest@127.0.0.1:5672",
  variable: "POSTBOX_TEST_RABBITMQ_URL",
  probe: rabbitmqVersion,
  debian: {
    package: "rabbitmq-server",
    configuration: {
      "/etc/rabbitmq/rabbitmq.conf": "listeners.tcp.local = 127.0.0.1:5672\n",
      // By default, the broker's clustering port and Erlang's name server listen on all interfaces.
      "/etc/rabbitmq/rabbitmq-env.conf": [
        "NODENAME=rabbit@localhost",
        "export ERL_EPMD_ADDRESS=127.0.0.1",
        'export ERL_FLAGS="-kernel inet_dist_use_interface {127,0,0,1}"',
        "",
      ].join("\n"),
    },
    start: "service rabbitmq-server start",
  },
};

/** Opens AMQP 0-9-1 at `url` just far enough for the broker to send its properties. */
export async function rabbitmqVersion(url: string): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port || 5672) });
  socket.setTimeout(timeoutMs, () => socket.destroy(new Error(`no AMQP answer within ${timeoutMs} ms`)));
  try {
    socket.write("AMQP\x00\x00\x09\x01", "latin1");
    let received = Buffer.alloc(0);
    for await (const chunk of socket) {
      received = Buffer.concat([received, chunk]);
      const properties = readConnectionStart(received);
      if (properties) return `${properties.get("version") ?? "unknown"}`;
    }
    throw new Error("the server closed the connection without an AMQP answer");
  } finally {
    socket.destroy();
  }
}

/**
 * Reads the server properties from a Connection.Start frame: type 1, channel 0, size, class 10, method 10, two version
 * bytes, then a table. Undefined while the frame is incomplete.
 */
function readConnectionStart(bytes: Buffer): ReadonlyMap<string, string> | undefined {
  if (bytes.length < 7) return undefined;
  const end = 7 + bytes.readUInt32BE(3);
  if (bytes[0] !== 1) throw new Error("the server does not speak AMQP 0-9-1");
  if (bytes.length < end) return undefined;
  if (bytes.readUInt32BE(7) !== 0x000a_000a) throw new Error("the first AMQP frame is not Connection.Start");

  const properties = new Map<string, string>();
  let at = 17;
  const tableEnd = at + bytes.readUInt32BE(13);
  while (at < tableEnd) {
    const nameLength = bytes.readUInt8(at);
    const name = bytes.toString("utf8", at + 1, at + 1 + nameLength);
    at += 1 + nameLength;
    const type = String.fromCharCode(bytes.readUInt8(at++));
    if (type === "t") {
      at += 1;
      continue;
    }
    // Strings and tables have a length prefix. Server properties have no other types.
    if (type !== "S" && type !== "F") throw new Error(`unexpected AMQP field type ${type} in ${name}`);
    const length = bytes.readUInt32BE(at);
    if (type === "S") properties.set(name, bytes.toString("utf8", at + 4, at + 4 + length));
    at += 4 + length;
  }
  return properties;
}
