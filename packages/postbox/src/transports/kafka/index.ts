export type { OnUnroutable, Unroutable } from "../unroutable.js";
export type {
  CommittedOffset,
  FetchedPartition,
  GroupIdentity,
  JoinAnswer,
  JoinRequest,
  KafkaClient,
  KafkaCluster,
  KafkaCompression,
  KafkaCredentials,
  KafkaMetadata,
  KafkaRecord,
  KafkaSasl,
  KafkaSettings,
  ProducedBatch,
  ProducerIdentity,
  ReceivedRecord,
  TopicPartition,
} from "./client.js";
export type { KafkaConnectionOptions } from "./connection.js";
export type { ForeignRecord, FromForeign, KafkaContentMode } from "./kafka-message.js";
export { type KafkaReceiver, type KafkaReceiverOptions, kafkaReceiver } from "./kafka-receiver.js";
export { type KafkaSender, type KafkaSenderOptions, kafkaSender } from "./kafka-sender.js";
export { type KafkajsClientOptions, kafkajsClient } from "./kafkajs-client.js";
export type { TopicPlan } from "./topology.js";
