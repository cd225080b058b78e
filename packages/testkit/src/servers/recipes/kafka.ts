import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../free-port.js";
import { fetchKafka, kafkaProgram } from "../kafka-programs.js";
import type { Recipe } from "../recipe.js";
import { kafkaVersion } from "../services/kafka.js";

/** One node of a cluster in KRaft mode, which is a broker and a controller. */
export interface KafkaNode {
  readonly port: number;
  /** From 1. */
  readonly nodeId: number;
  /** The ports of all controllers; the first one is node 1's. */
  readonly controllers: readonly number[];
  /** Additional lines of server.properties. */
  readonly configuration?: string;
}

/** Where the configuration of a node was written, and what formats its storage. */
interface KafkaProperties {
  readonly file: string;
  readonly formatArguments: readonly string[];
}

/** The same for all: nodes of one cluster must agree on it, and clusters never meet. */
const clusterId = "postboxpostboxpostboxw";

/** Writes the configuration of a node into `folder`. Everything listens on loopback. */
export function writeKafkaProperties(folder: string, node: KafkaNode): KafkaProperties {
  const { port, nodeId, controllers, configuration = "" } = node;
  const data = join(folder, "data");
  mkdirSync(data, { recursive: true });
  const copies = Math.min(3, controllers.length);
  const file = join(folder, "server.properties");
  const lines = [
    "process.roles=broker,controller",
    `node.id=${nodeId}`,
    `controller.quorum.voters=${controllers.map((each, at) => `${at + 1}@127.0.0.1:${each}`).join(",")}`,
    `listeners=CLIENTS://127.0.0.1:${port},CONTROLLERS://127.0.0.1:${controllers[nodeId - 1]}`,
    `advertised.listeners=CLIENTS://127.0.0.1:${port}`,
    "listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLERS:PLAINTEXT",
    "controller.listener.names=CONTROLLERS",
    "inter.broker.listener.name=CLIENTS",
    `log.dirs=${data}`,
    "auto.create.topics.enable=false",
    // Less than by default, so that a start takes seconds.
    "offsets.topic.num.partitions=4",
    `offsets.topic.replication.factor=${copies}`,
    `transaction.state.log.replication.factor=${copies}`,
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.min.isr=1",
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
    // A group of one test has all of its members at once.
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=1000",
    configuration,
    "",
  ];
  writeFileSync(file, lines.join("\n"));
  return { file, formatArguments: ["format", "--cluster-id", clusterId, "--config", file] };
}

/** A node on ports of its own. Its configuration is written anew for each start, with the port of its clients. */
export function kafka(configuration: string, cluster?: Omit<KafkaNode, "port">): Recipe {
  return {
    prepare: async (folder) => {
      await fetchKafka();
      const node = cluster ?? { nodeId: 1, controllers: [await freePort()] };
      const formatted = writeKafkaProperties(folder.path, { ...node, port: await freePort(), configuration });
      await folder.run(kafkaProgram(folder.path, "kafka.tools.StorageTool", formatted.formatArguments));
      return {
        command: (port) =>
          kafkaProgram(folder.path, "kafka.Kafka", [
            writeKafkaProperties(folder.path, { ...node, port, configuration }).file,
          ]),
        url: (port) => `kafka://127.0.0.1:${port}`,
        probe: kafkaVersion,
      };
    },
  };
}
