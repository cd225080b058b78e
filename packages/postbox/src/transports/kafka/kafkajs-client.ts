import { isIP, connect as netConnect, type Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import type { Kafka, KafkaConfig, PartitionAssigner, SASLOptions } from "kafkajs";
import { ConfigError, type PostboxError, TransportDownError } from "../../errors.js";
import type {
  FetchedPartition,
  GroupIdentity,
  KafkaClient,
  KafkaCluster,
  KafkaSettings,
  ReceivedRecord,
  TopicPartition,
} from "./client.js";

/** Options of `kafkajsClient`. */
export interface KafkajsClientOptions {
  /** Opens the socket of each connection, for proxies. Defaults to that of `node:net`, or of `node:tls` with TLS. */
  readonly socketFactory?: NonNullable<KafkaConfig["socketFactory"]>;
}

/**
 * Connects through `kafkajs` 2.2. It uses the library's connections, authentication and encoding only: its producer
 * gives one sequence to two batches after a lost connection, so the broker drops the second one as a duplicate, and its
 * consumer keeps neither generations nor partitions over a rebalance.
 *
 * @example
 * ```ts
 * const sender = kafkaSender({ url: "kafka://localhost:9092", client: kafkajsClient() });
 * ```
 */
export function kafkajsClient(options: KafkajsClientOptions = {}): KafkaClient {
  return { name: "kafkajs", open: async (settings) => new KafkajsCluster(await load(), settings, options) };
}

type Library = typeof import("kafkajs");

async function load(): Promise<Library> {
  try {
    return await import("kafkajs");
  } catch (cause) {
    const text = "cannot load 'kafkajs'; install it beside postbox: npm install kafkajs@2.2";
    throw new ConfigError("driver-missing", text, { cause });
  }
}

/*
 * The library declares its brokers in part only. These are the members that are used here, as they are in 2.2, its last
 * release.
 */

interface Protocol {
  readonly request: object;
  readonly response: { decode(bytes: Buffer): Promise<unknown>; parse(decoded: unknown): Promise<unknown> };
}

interface Connection {
  isConnected(): boolean;
  connect(): Promise<unknown>;
}

interface ConnectionPool {
  /** One for fetches, which wait at the broker, and one for everything else. */
  readonly pool: readonly [Connection, Connection];
  sasl: unknown;
  send(protocol: Protocol): Promise<unknown>;
  destroy(): Promise<void>;
}

type Ask = (request: object) => Promise<unknown>;

interface Broker {
  readonly connectionPool: ConnectionPool;
  connect(): Promise<void>;
  metadata(topics: readonly string[]): Promise<unknown>;
  readonly produce: Ask;
  readonly fetch: Ask;
  readonly listOffsets: Ask;
  readonly findGroupCoordinator: Ask;
  readonly heartbeat: Ask;
  readonly leaveGroup: Ask;
  readonly offsetCommit: Ask;
  readonly offsetFetch: Ask;
  readonly createTopics: Ask;
  readonly describeConfigs: Ask;
  readonly initProducerId: Ask;
  readonly joinGroup: Ask;
  readonly syncGroup: Ask;
}

interface BrokerPool {
  readonly connectionPoolBuilder: { build(place: Place): Promise<ConnectionPool> };
  createBroker(options: { connectionPool: ConnectionPool; logger: unknown; nodeId?: number }): Broker;
  readonly rootLogger: unknown;
}

interface Place {
  readonly host: string;
  readonly port: number;
}

/** A broker, and the opening of its connections, which concurrent requests share. */
interface Node {
  readonly broker: Broker;
  /** The same broker, whose answers keep the error codes of each partition: the library throws the first one only. */
  readonly plain: Broker;
  opening: (Promise<void> | undefined)[];
}

/** A request that waits at the coordinator for other members would hold up the others of its connection. */
type Purpose = "any" | "group";

class KafkajsCluster implements KafkaCluster {
  readonly #settings: KafkaSettings;
  readonly #library: Library;
  readonly #brokers: BrokerPool;
  readonly #sockets = new Set<Socket>();
  readonly #places = new Map<number, Place>();
  readonly #nodes = new Map<string, Node>();
  readonly #sasl: Record<string, unknown> | undefined;

  constructor(library: Library, settings: KafkaSettings, { socketFactory }: KafkajsClientOptions) {
    this.#settings = settings;
    this.#library = library;
    this.#sasl = settings.sasl && { mechanism: settings.sasl.mechanism };
    const open = socketFactory ?? defaultSocket;
    const kafka = new library.Kafka({
      brokers: [...settings.brokers],
      clientId: settings.clientId,
      connectionTimeout: settings.connectTimeoutMs,
      authenticationTimeout: settings.connectTimeoutMs,
      requestTimeout: settings.requestTimeoutMs,
      // Postbox reports what happens to connections.
      logCreator: () => () => {},
      retry: { retries: 0 },
      ...(settings.tls && { ssl: settings.tls }),
      ...(this.#sasl && { sasl: this.#sasl as unknown as SASLOptions }),
      socketFactory: (args) => this.#watched(open(args)),
    });
    this.#brokers = brokersOf(kafka);
  }

  #watched(socket: Socket): Socket {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    let connected = false;
    socket.once("connect", () => {
      connected = true;
    });
    socket.once("close", () => {
      // The library ends its half only.
      socket.destroy();
      if (this.#sockets.delete(socket) && connected) this.#settings.lost("the connection was closed");
    });
    return socket;
  }

  async metadata(topics: readonly string[]) {
    const { brokers, topicMetadata } = (await this.#anywhere((node) => node.plain.metadata(topics))) as Metadata;
    for (const { nodeId, host, port } of brokers) this.#places.set(nodeId, { host, port });
    return {
      nodes: brokers.map(({ nodeId }) => nodeId),
      topics: topicMetadata.map(({ topic, topicErrorCode, partitionMetadata }) => ({
        topic,
        code: topicErrorCode,
        partitions: partitionMetadata
          .map(({ partitionId, leader }) => ({ partition: partitionId, leader }))
          .sort((a, b) => a.partition - b.partition),
      })),
    };
  }

  async producerIdentity() {
    const request = { transactionalId: undefined, transactionTimeout: 60_000 };
    const answer = (await this.#anywhere(({ plain }) => plain.initProducerId(request))) as {
      readonly errorCode: number;
      readonly producerId: string;
      readonly producerEpoch: number;
    };
    return { code: answer.errorCode, producerId: answer.producerId, epoch: answer.producerEpoch };
  }

  async produce(...[node, { producerId, epoch }, batches, compression]: Parameters<KafkaCluster["produce"]>) {
    const { None, GZIP } = this.#library.CompressionTypes;
    const answer = (await this.#at(node, "any", 0, ({ plain }) =>
      plain.produce({
        acks: -1,
        timeout: this.#settings.requestTimeoutMs,
        compression: compression === "gzip" ? GZIP : None,
        producerId,
        producerEpoch: epoch,
        topicData: byTopic(batches).map(([topic, of]) => ({
          topic,
          partitions: of.map(({ partition, sequence, records }) => ({
            partition,
            firstSequence: sequence,
            messages: records,
          })),
        })),
      }),
    )) as { readonly topics: readonly OfTopic<PartitionCode>[] };
    return answer.topics.flatMap(({ topicName, partitions }) =>
      partitions.map(({ partition, errorCode }) => ({ topic: topicName, partition, code: errorCode })),
    );
  }

  async fetch(...[node, from, { maxWaitMs, maxBytes }]: Parameters<KafkaCluster["fetch"]>) {
    const asked = new Map(from.map((each) => [`${each.topic}/${each.partition}`, each.offset]));
    const answer = (await this.#at(node, "any", 1, ({ plain }) =>
      plain.fetch({
        isolationLevel: 1,
        maxWaitTime: maxWaitMs,
        minBytes: 1,
        maxBytes: maxBytes * from.length,
        topics: byTopic(from).map(([topic, of]) => ({
          topic,
          partitions: of.map(({ partition, offset }) => ({ partition, fetchOffset: String(offset), maxBytes })),
        })),
      }),
    )) as { readonly responses: readonly OfTopic<FetchedByLibrary>[] };
    return answer.responses.flatMap(({ topicName: topic, partitions }) =>
      partitions.map((read) => visible(topic, asked.get(`${topic}/${read.partition}`) ?? 0, read)),
    );
  }

  async earliest(node: number, partitions: readonly TopicPartition[]) {
    const topics = byTopic(partitions).map(([topic, of]) => ({
      topic,
      partitions: of.map(({ partition }) => ({ partition, timestamp: "-2" })),
    }));
    const answer = (await this.#at(node, "any", 0, ({ plain }) =>
      plain.listOffsets({ replicaId: -1, isolationLevel: 1, topics }),
    )) as { readonly responses: readonly (ByName & { partitions: (PartitionCode & { offset: string })[] })[] };
    return answer.responses.flatMap(({ topic, partitions: of }) =>
      of.map(({ partition, errorCode, offset }) => ({ topic, partition, code: errorCode, offset: Number(offset) })),
    );
  }

  async coordinatorOf(group: string) {
    const { errorCode, coordinator } = (await this.#anywhere(({ plain }) =>
      plain.findGroupCoordinator({ groupId: group, coordinatorType: 0 }),
    )) as { readonly errorCode: number; readonly coordinator: Place & { readonly nodeId: number } };
    if (errorCode === 0) this.#places.set(coordinator.nodeId, { host: coordinator.host, port: coordinator.port });
    return { code: errorCode, node: coordinator.nodeId };
  }

  async join(...[node, request]: Parameters<KafkaCluster["join"]>) {
    const { group, memberId, sessionTimeoutMs, rebalanceTimeoutMs, protocol, metadata } = request;
    const answer = (await this.#at(node, "group", 0, ({ plain }) =>
      plain.joinGroup({
        groupId: group,
        memberId,
        sessionTimeout: sessionTimeoutMs,
        rebalanceTimeout: rebalanceTimeoutMs,
        groupProtocols: [{ name: protocol, metadata }],
      }),
    )) as {
      readonly errorCode: number;
      readonly generationId: number;
      readonly memberId: string;
      readonly leaderId: string;
      readonly members: readonly { readonly memberId: string; readonly memberMetadata: Buffer }[];
    };
    return {
      code: answer.errorCode,
      generation: answer.generationId,
      memberId: answer.memberId,
      leaderId: answer.leaderId,
      members: answer.members.map((each) => ({ memberId: each.memberId, metadata: each.memberMetadata })),
    };
  }

  async sync(...[node, { group, memberId, generation }, assignments]: Parameters<KafkaCluster["sync"]>) {
    const answer = (await this.#at(node, "group", 0, ({ plain }) =>
      plain.syncGroup({
        groupId: group,
        generationId: generation,
        memberId,
        groupAssignment: assignments.map((each) => ({ memberId: each.memberId, memberAssignment: each.assignment })),
      }),
    )) as { readonly errorCode: number; readonly memberAssignment: Buffer };
    return { code: answer.errorCode, assignment: answer.memberAssignment };
  }

  async heartbeat(...[node, { group, memberId, generation }]: Parameters<KafkaCluster["heartbeat"]>) {
    const request = { groupId: group, groupGenerationId: generation, memberId };
    const answer = (await this.#at(node, "group", 0, ({ plain }) => plain.heartbeat(request))) as HasCode;
    return answer.errorCode;
  }

  async leave(node: number, { group, memberId }: GroupIdentity) {
    const request = { groupId: group, memberId };
    const answer = (await this.#at(node, "any", 0, ({ plain }) => plain.leaveGroup(request))) as HasCode;
    return answer.errorCode;
  }

  async commit(...[node, { group, memberId, generation }, offsets]: Parameters<KafkaCluster["commit"]>) {
    const topics = byTopic(offsets).map(([topic, of]) => ({
      topic,
      partitions: of.map(({ partition, offset, metadata }) => ({ partition, offset: String(offset), metadata })),
    }));
    const answer = (await this.#at(node, "any", 0, ({ plain }) =>
      plain.offsetCommit({ groupId: group, groupGenerationId: generation, memberId, topics }),
    )) as { readonly responses: readonly (ByName & { readonly partitions: readonly PartitionCode[] })[] };
    return answer.responses.flatMap(({ topic, partitions }) =>
      partitions.map(({ partition, errorCode }) => ({ topic, partition, code: errorCode })),
    );
  }

  async committed(...[node, group, partitions]: Parameters<KafkaCluster["committed"]>) {
    const topics = byTopic(partitions).map(([topic, of]) => ({
      topic,
      partitions: of.map(({ partition }) => ({ partition })),
    }));
    type Read = PartitionCode & { readonly offset: string; readonly metadata: string | null };
    const answer = (await this.#at(node, "any", 0, ({ plain }) => plain.offsetFetch({ groupId: group, topics }))) as {
      readonly errorCode?: number;
      readonly responses: readonly (ByName & { readonly partitions: readonly Read[] })[];
    };
    return answer.responses.flatMap(({ topic, partitions: of }) =>
      of.map(({ partition, errorCode, offset, metadata }) => ({
        topic,
        partition,
        code: answer.errorCode || errorCode,
        offset: Number(offset),
        metadata: metadata ?? "",
      })),
    );
  }

  async createTopics(topics: Parameters<KafkaCluster["createTopics"]>[0]) {
    const request = {
      topics: topics.map(({ topic, partitions, replicas }) => ({
        topic,
        numPartitions: partitions,
        replicationFactor: replicas,
      })),
      timeout: this.#settings.requestTimeoutMs,
    };
    // A broker passes it on to the controller.
    const answer = (await this.#anywhere(({ plain }) => plain.createTopics(request))) as {
      readonly topicErrors: readonly (ByName & HasCode & { readonly errorMessage?: string | null })[];
    };
    return answer.topicErrors.map(({ topic, errorCode, errorMessage }) => ({
      topic,
      code: errorCode,
      text: errorMessage ?? "",
    }));
  }

  async settingsOf(topic: string, names: readonly string[]) {
    const request = { resources: [{ type: 2, name: topic, configNames: [...names] }], includeSynonyms: false };
    const answer = (await this.#anywhere(({ plain }) => plain.describeConfigs(request))) as {
      readonly resources: readonly {
        readonly configEntries: readonly { readonly configName: string; readonly configValue: string | null }[];
      }[];
    };
    const entries = answer.resources[0]?.configEntries ?? [];
    return Object.fromEntries(entries.map(({ configName, configValue }) => [configName, configValue ?? ""]));
  }

  close(): void {
    const open = [...this.#sockets];
    this.#sockets.clear();
    this.#nodes.clear();
    // With an error: without one, the library leaves its callers waiting.
    for (const socket of open) socket.destroy(new Error("closed"));
  }

  /** Asks the brokers that are known, then those of the settings, until one answers. */
  async #anywhere(ask: (node: Node) => Promise<unknown>): Promise<unknown> {
    const known = [...this.#places.values()].map(({ host, port }) => `${host}:${port}`);
    let failure: unknown;
    for (const place of new Set([...known, ...this.#settings.brokers])) {
      try {
        return await this.#ask(place, "any", 0, ask);
      } catch (error) {
        if (error instanceof ConfigError) throw error;
        failure = error;
      }
    }
    throw failure;
  }

  async #at(id: number, purpose: Purpose, index: 0 | 1, ask: (node: Node) => Promise<unknown>): Promise<unknown> {
    const place = this.#places.get(id);
    if (place === undefined) throw new TransportDownError("connect", `broker ${id} is not known`);
    return this.#ask(`${place.host}:${place.port}`, purpose, index, ask);
  }

  async #ask(place: string, purpose: Purpose, index: 0 | 1, ask: (node: Node) => Promise<unknown>): Promise<unknown> {
    let during: "connect" | "send" = "connect";
    try {
      const node = await this.#node(place, purpose);
      await this.#connected(node, index);
      during = "send";
      return await ask(node);
    } catch (error) {
      throw explained(error, place, during);
    }
  }

  async #node(place: string, purpose: Purpose): Promise<Node> {
    const name = `${place} ${purpose}`;
    const known = this.#nodes.get(name);
    if (known !== undefined) return known;
    const at = place.lastIndexOf(":");
    const host = place.slice(0, at).replace(/^\[|\]$/g, "");
    const connectionPool = await this.#brokers.connectionPoolBuilder.build({ host, port: Number(place.slice(at + 1)) });
    const broker = this.#brokers.createBroker({ connectionPool, logger: this.#brokers.rootLogger });
    const node = this.#nodes.get(name) ?? { broker, plain: withCodes(broker), opening: [] };
    this.#nodes.set(name, node);
    return node;
  }

  async #connected(node: Node, index: 0 | 1): Promise<void> {
    const { pool } = node.broker.connectionPool;
    // A socket is connected before its broker has told which requests it knows.
    const isOpening = node.opening[0] !== undefined || node.opening[index] !== undefined;
    if (!isOpening && pool[0].isConnected() && pool[index].isConnected()) return;
    node.opening[index] ??= this.#open(node, index).finally(() => {
      node.opening[index] = undefined;
    });
    await node.opening[index];
  }

  async #open(node: Node, index: 0 | 1): Promise<void> {
    if (this.#sasl && this.#settings.sasl) Object.assign(this.#sasl, await credentialsFor(this.#settings.sasl));
    const { pool } = node.broker.connectionPool;
    if (index === 1) {
      await this.#connected(node, 0);
      await pool[1].connect();
      return;
    }
    await node.broker.connect();
    // The library takes a broker for connected if either of its connections is.
    if (!pool[0].isConnected()) await pool[0].connect();
  }
}

/** The library has no public way to its brokers, but gives its cluster to assigners. */
function brokersOf(kafka: Kafka): BrokerPool {
  let found: unknown;
  const assigner: PartitionAssigner = ({ cluster }) => {
    found = cluster;
    return {
      name: "none",
      version: 0,
      assign: async () => [],
      protocol: () => ({ name: "none", metadata: Buffer.alloc(0) }),
    };
  };
  kafka.consumer({ groupId: "none", partitionAssigners: [assigner], allowAutoTopicCreation: false });
  const { brokerPool } = (found ?? {}) as { readonly brokerPool?: BrokerPool };
  if (typeof brokerPool?.connectionPoolBuilder?.build !== "function" || typeof brokerPool.createBroker !== "function") {
    throw new ConfigError("driver-missing", "this version of kafkajs is not supported; install kafkajs@2.2");
  }
  return brokerPool;
}

/** A view of the broker whose answers are decoded and not judged. */
function withCodes(broker: Broker): Broker {
  const { connectionPool } = broker;
  return Object.create(broker, {
    connectionPool: {
      value: {
        send: ({ request, response, ...rest }: Protocol) =>
          connectionPool.send({
            ...rest,
            request,
            response: { decode: response.decode, parse: async (decoded: unknown) => decoded },
          }),
        destroy: async () => {},
      },
    },
  });
}

const defaultSocket: NonNullable<KafkaConfig["socketFactory"]> = ({ host, port, ssl, onConnect }) => {
  if (ssl) {
    const servername = isIP(host) ? {} : { servername: host };
    return tlsConnect({ host, port, ...servername, ...(ssl as object) }, onConnect);
  }
  return netConnect({ host, port }, onConnect);
};

async function credentialsFor(sasl: NonNullable<KafkaSettings["sasl"]>): Promise<Record<string, unknown>> {
  const given = await sasl.credentials();
  if ("token" in given) return { oauthBearerProvider: async () => ({ value: given.token }) };
  return { username: given.username, password: given.password };
}

interface HasCode {
  readonly errorCode: number;
}
interface ByName {
  readonly topic: string;
}
interface PartitionCode extends HasCode {
  readonly partition: number;
}
interface OfTopic<P> {
  readonly topicName: string;
  readonly partitions: readonly P[];
}
interface Metadata {
  readonly brokers: readonly (Place & { readonly nodeId: number })[];
  readonly topicMetadata: readonly {
    readonly topic: string;
    readonly topicErrorCode: number;
    readonly partitionMetadata: readonly { readonly partitionId: number; readonly leader: number }[];
  }[];
}
interface FetchedByLibrary extends PartitionCode {
  readonly abortedTransactions: readonly { readonly producerId: string; readonly firstOffset: string }[] | null;
  readonly messages: readonly {
    readonly offset: string;
    readonly timestamp: string;
    readonly key: Buffer | null;
    readonly value: Buffer | null;
    readonly headers?: ReceivedRecord["headers"];
    readonly isControlRecord?: boolean;
    readonly batchContext?: {
      readonly firstOffset: string;
      readonly lastOffsetDelta: number;
      readonly producerId: string;
      readonly inTransaction: boolean;
    };
  }[];
}

function byTopic<P extends TopicPartition>(all: readonly P[]): [string, P[]][] {
  const topics = new Map<string, P[]>();
  for (const each of all) {
    const of = topics.get(each.topic);
    if (of === undefined) topics.set(each.topic, [each]);
    else of.push(each);
  }
  return [...topics];
}

/** Leaves out markers of transactions, and what aborted transactions have written. */
function visible(topic: string, from: number, read: FetchedByLibrary): FetchedPartition {
  const { partition, errorCode, messages } = read;
  const aborts = (read.abortedTransactions ?? [])
    .map(({ producerId, firstOffset }) => ({ producerId, from: Number(firstOffset) }))
    .sort((a, b) => a.from - b.from);
  const aborted = new Set<string>();
  const records: ReceivedRecord[] = [];
  let next = from;
  for (const { offset: text, timestamp, key, value, headers = {}, isControlRecord, batchContext: batch } of messages) {
    const offset = Number(text);
    while (aborts[0] !== undefined && aborts[0].from <= offset)
      aborted.add((aborts.shift() as { producerId: string }).producerId);
    next = Math.max(next, offset + 1, batch ? Number(batch.firstOffset) + batch.lastOffsetDelta + 1 : 0);
    if (isControlRecord) {
      if (batch) aborted.delete(String(batch.producerId));
      continue;
    }
    // A batch may begin before the offset that was asked for.
    if (offset < from || (batch?.inTransaction && aborted.has(String(batch.producerId)))) continue;
    records.push({ offset, timestamp: Number(timestamp), key, value, headers });
  }
  return { topic, partition, code: errorCode, records, next };
}

/** Node.js's codes of certificates that stay invalid. */
const untrusted = /SELF_SIGNED|UNABLE_TO_(GET_ISSUER|VERIFY_LEAF)|CERT_(UNTRUSTED|REJECTED|REVOKED)|ALTNAME_INVALID/;

/** The library's errors may carry credentials, so they are not kept as causes. */
function explained(cause: unknown, place: string, during: "connect" | "send"): PostboxError {
  if (cause instanceof ConfigError || cause instanceof TransportDownError) return cause;
  const { name, message, code } = cause as { name?: string; message?: string; code?: unknown };
  if (name === "KafkaJSSASLAuthenticationError" || name === "KafkaJSUnsupportedSaslMechanismError") {
    return new ConfigError(
      "transport-refused",
      `kafka://${place} refuses these credentials; check user, password and the mechanism`,
    );
  }
  if (typeof code === "string" && untrusted.test(code)) {
    const text = `the certificate of kafka://${place} is not trusted here (${code}); give its authority as tls.ca`;
    return new ConfigError("transport-refused", text);
  }
  const why = typeof code === "string" ? code : (message ?? "no answer");
  const what = during === "connect" ? "cannot be reached" : "was lost";
  return new TransportDownError(during, `kafka://${place} ${what}: ${why}`);
}
