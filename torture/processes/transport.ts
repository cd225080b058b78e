import { connect } from "node:net";
import { type Backoff, type Receiver, type Sender, silent, type Telemetry } from "postbox";
import { kafkajsClient, kafkaReceiver, kafkaSender } from "postbox/kafka";
import { rabbitmqReceiver, rabbitmqSender } from "postbox/rabbitmq";
import type { Part } from "./part.js";

export const isKafka = (broker: string): boolean => broker.startsWith("kafka:");

/** Every connection goes through the proxy of this process, whatever the broker tells of its address. */
function throughProxy({ broker }: Part) {
  const { port, hostname } = new URL(broker);
  const socketFactory = ({ onConnect }: { onConnect: () => void }) =>
    connect({ host: hostname, port: Number(port) }, onConnect);
  return { url: broker, client: kafkajsClient({ socketFactory }) };
}

export function senderOf(part: Part): Sender & { close(): Promise<void> } {
  if (isKafka(part.broker)) return kafkaSender({ ...throughProxy(part), clientId: part.name, telemetry: silent });
  return rabbitmqSender({ url: part.broker, connectionName: part.name, heartbeatSeconds: 2 });
}

export function receiverOf(part: Part, backoff: Backoff, telemetry: Telemetry): Receiver {
  const { broker: url, name, queue = "" } = part;
  if (isKafka(url)) {
    const timing = { sessionTimeoutMs: 6_000, heartbeatMs: 200, requestTimeoutMs: 5_000, backoff };
    return kafkaReceiver({ ...throughProxy(part), ...timing, group: queue, prefetch: 20, clientId: name, telemetry });
  }
  return rabbitmqReceiver({
    url,
    queue,
    topology: "check",
    bindings: false,
    prefetch: 50,
    connectionName: name,
    heartbeatSeconds: 2,
    backoff,
    telemetry,
  });
}
