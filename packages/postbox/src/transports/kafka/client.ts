/*
 * What Postbox needs of a client library of Kafka: connections, authentication, and the encoding of requests. All that
 * decides about messages (sequences of the producer, membership of a group, offsets, retries) is Postbox's own, and so
 * the same with every library.
 *
 * A request resolves with the broker's error codes, 0 for none. It rejects with a `TransportDownError` if its broker
 * cannot be reached (`connect`) or the connection was lost before the answer (`send`), and with a `ConfigError` if
 * authentication fails.
 */

/** A client library. */
export interface KafkaClient {
  readonly name: string;
  /** Makes the connections of a sender or receiver. Each is opened when it is first needed, and again after a loss. */
  open(settings: KafkaSettings): Promise<KafkaCluster>;
}

/** How to connect. */
export interface KafkaSettings {
  /** `host:port` of some brokers, from which the others are learned. */
  readonly brokers: readonly string[];
  readonly clientId: string;
  readonly connectTimeoutMs: number;
  /** After this time without an answer, the connection of a request counts as lost. */
  readonly requestTimeoutMs: number;
  /** Options of `tls.connect`; absent without TLS. */
  readonly tls?: Readonly<Record<string, unknown>>;
  readonly sasl?: KafkaSasl;
  /** A connection was lost, although nobody closed it. */
  lost(why: string): void;
}

/** How to authenticate. The credentials are asked for before each connection. */
export interface KafkaSasl {
  readonly mechanism: "plain" | "scram-sha-256" | "scram-sha-512" | "oauthbearer";
  credentials(): Promise<KafkaCredentials>;
}

/** A user with a password, or a token of OAuth. */
export type KafkaCredentials = { readonly username: string; readonly password: string } | { readonly token: string };

/** A partition of a topic. */
export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** What a broker knows of some topics. */
export interface KafkaMetadata {
  /** The number of each broker that is alive. */
  readonly nodes: readonly number[];
  readonly topics: readonly {
    readonly topic: string;
    readonly code: number;
    /** `leader` is -1 while there is none. In ascending order. */
    readonly partitions: readonly { readonly partition: number; readonly leader: number }[];
  }[];
}

/** One message of a partition. */
export interface KafkaRecord {
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: Readonly<Record<string, Uint8Array | readonly Uint8Array[]>>;
}

export interface ReceivedRecord extends KafkaRecord {
  readonly offset: number;
  /** When it was created or appended, in milliseconds since 1970. */
  readonly timestamp: number;
}

/** The identity of an idempotent producer. */
export interface ProducerIdentity {
  readonly producerId: string;
  readonly epoch: number;
}

/** The records for one partition, in their order, numbered from `sequence` on. */
export interface ProducedBatch extends TopicPartition {
  readonly sequence: number;
  readonly records: readonly KafkaRecord[];
}

/** Records that were read from a partition. */
export interface FetchedPartition extends TopicPartition {
  readonly code: number;
  readonly records: readonly ReceivedRecord[];
  /** The offset to read next: after all that was read, including what is not visible. */
  readonly next: number;
}

/** A member of a group, as its coordinator knows it. */
export interface GroupIdentity {
  readonly group: string;
  readonly memberId: string;
  /** The name of a static member. */
  readonly instanceId?: string;
}

export interface JoinRequest extends GroupIdentity {
  readonly sessionTimeoutMs: number;
  readonly rebalanceTimeoutMs: number;
  readonly protocol: string;
  readonly metadata: Buffer;
}

/** What the coordinator answers to a member that joins. */
export interface JoinAnswer {
  readonly code: number;
  readonly generation: number;
  readonly memberId: string;
  readonly leaderId: string;
  /** All members, if this one is the leader. */
  readonly members: readonly { readonly memberId: string; readonly metadata: Buffer }[];
}

export interface CommittedOffset extends TopicPartition {
  readonly code: number;
  /** -1 if none is committed. */
  readonly offset: number;
  readonly metadata: string;
}

/** The connections of one sender or receiver to the brokers of a cluster. */
export interface KafkaCluster {
  /** Asks any broker. An unknown topic is not created. */
  metadata(topics: readonly string[]): Promise<KafkaMetadata>;
  producerIdentity(): Promise<ProducerIdentity & { readonly code: number }>;
  /** Resolves when all in-sync replicas have the batches. Requests to a broker keep their order. */
  produce(
    node: number,
    identity: ProducerIdentity,
    batches: readonly ProducedBatch[],
    compression: KafkaCompression,
  ): Promise<readonly (TopicPartition & { readonly code: number })[]>;
  /** Reads what is committed. Waits for up to `maxWaitMs` until there is anything. */
  fetch(
    node: number,
    from: readonly (TopicPartition & { readonly offset: number })[],
    limits: { readonly maxWaitMs: number; readonly maxBytes: number },
  ): Promise<readonly FetchedPartition[]>;
  /** The first offset of each partition that still exists. */
  earliest(
    node: number,
    partitions: readonly TopicPartition[],
  ): Promise<readonly (TopicPartition & { readonly code: number; readonly offset: number })[]>;
  coordinatorOf(group: string): Promise<{ readonly code: number; readonly node: number }>;
  join(node: number, request: JoinRequest): Promise<JoinAnswer>;
  sync(
    node: number,
    member: GroupIdentity & { readonly generation: number },
    assignments: readonly { readonly memberId: string; readonly assignment: Buffer }[],
  ): Promise<{ readonly code: number; readonly assignment: Buffer }>;
  heartbeat(node: number, member: GroupIdentity & { readonly generation: number }): Promise<number>;
  leave(node: number, member: GroupIdentity): Promise<number>;
  /** Offsets with up to 4096 characters of metadata. */
  commit(
    node: number,
    member: GroupIdentity & { readonly generation: number },
    offsets: readonly (TopicPartition & { readonly offset: number; readonly metadata: string })[],
  ): Promise<readonly (TopicPartition & { readonly code: number })[]>;
  committed(node: number, group: string, partitions: readonly TopicPartition[]): Promise<readonly CommittedOffset[]>;
  createTopics(
    topics: readonly { readonly topic: string; readonly partitions: number; readonly replicas: number }[],
  ): Promise<readonly { readonly topic: string; readonly code: number; readonly text: string }[]>;
  /** The values of these settings of a topic, by name. */
  settingsOf(topic: string, names: readonly string[]): Promise<Readonly<Record<string, string>>>;
  /** Closes all connections at once. Requests in flight reject. A later request opens a connection again. */
  close(): void;
}

/** How batches are compressed. Other codecs are read if the client has them. */
export type KafkaCompression = "none" | "gzip";
