import { ConfigError, TransportDownError } from "../../errors.js";
import { scrub } from "../../internal/scrub.js";
import { callback, type OptionRule, object, oneOf, positive, text } from "../../options.js";
import type { KafkaClient, KafkaCluster, KafkaCredentials, KafkaSasl } from "./client.js";
import { kafkajsClient } from "./kafkajs-client.js";

/** The options of every connection to Kafka. */
export interface KafkaConnectionOptions {
  /**
   * `kafka://` or, for TLS, `kafkas://`, with one or more brokers: `kafka://one:9092,two:9092`. A user and a password
   * before the first one are for SASL.
   */
  readonly url: string;
  /** The client library. Defaults to `kafkajsClient()`. */
  readonly client?: KafkaClient;
  /**
   * Called for each connection, for passwords and tokens that change. Defaults to the user and password of the URL, if
   * it has them.
   */
  readonly credentials?: () => KafkaCredentials | Promise<KafkaCredentials>;
  /** How to authenticate. Defaults to `plain`; without credentials there is no authentication. */
  readonly mechanism?: KafkaSasl["mechanism"];
  /** For `kafkas://`: options of `tls.connect`, such as `ca`, `cert` and `key`. Defaults to none. */
  readonly tls?: Readonly<Record<string, unknown>>;
  /** Shown in the broker's logs and quotas. Defaults to `postbox`. */
  readonly clientId?: string;
  /** Defaults to 10,000. */
  readonly connectTimeoutMs?: number;
  /** A broker that does not answer a request for this long counts as lost. Defaults to 30,000. */
  readonly requestTimeoutMs?: number;
}

const scheme = /^kafkas?:\/\//;

const urlRule: OptionRule = {
  expected: "a URL that begins with kafka:// or kafkas://, such as kafka://one:9092,two:9092",
  secret: true,
  test: (value) => typeof value === "string" && scheme.test(value) && parsed(value) !== undefined,
};

const clientRule: OptionRule = {
  expected: "a client, such as kafkajsClient()",
  test: (value) => typeof (value as Partial<KafkaClient> | null)?.open === "function",
};

export const connectionRules = {
  url: urlRule,
  client: clientRule,
  credentials: callback,
  mechanism: oneOf("plain", "scram-sha-256", "scram-sha-512", "oauthbearer"),
  tls: object,
  clientId: text,
  connectTimeoutMs: positive,
  requestTimeoutMs: positive,
};

interface ParsedUrl {
  readonly secure: boolean;
  readonly brokers: readonly string[];
  readonly user?: { readonly username: string; readonly password: string };
}

function parsed(url: string): ParsedUrl | undefined {
  const rest = url.replace(scheme, "").replace(/\/$/, "");
  const at = rest.lastIndexOf("@");
  try {
    const brokers = rest
      .slice(at + 1)
      .split(",")
      .map((broker) => {
        // A scheme that the parser knows, for its checks. It drops the port only if it is that scheme's.
        const { hostname, port, pathname, search } = new URL(`http://${broker}`);
        if (pathname !== "/" || search !== "" || hostname === "") throw new Error("not a broker");
        return `${hostname}:${port === "" ? (broker.endsWith(":80") ? 80 : 9092) : port}`;
      });
    if (at === -1) return { secure: url.startsWith("kafkas:"), brokers };
    const [username = "", ...password] = rest.slice(0, at).split(":");
    const user = { username: decodeURIComponent(username), password: decodeURIComponent(password.join(":")) };
    return { secure: url.startsWith("kafkas:"), brokers, user };
  } catch {
    return undefined;
  }
}

/** The addresses of the brokers, without credentials. */
export function placeOf(url: string): string {
  const { secure = false, brokers = [] } = parsed(url) ?? {};
  return `${secure ? "kafkas" : "kafka"}://${brokers.join(",")}`;
}

/** Makes the connections of one sender or receiver. Nothing is connected yet. */
export async function openCluster(options: KafkaConnectionOptions, lost: (why: string) => void): Promise<KafkaCluster> {
  const { url, client = kafkajsClient(), clientId = "postbox", mechanism = "plain", tls } = options;
  const { connectTimeoutMs = 10_000, requestTimeoutMs = 30_000 } = options;
  const { secure, brokers, user } = parsed(url) as ParsedUrl;
  const ask = options.credentials ?? (user && (() => user));
  return client.open({
    brokers,
    clientId,
    connectTimeoutMs,
    requestTimeoutMs,
    lost,
    ...(secure && { tls: tls ?? {} }),
    ...(ask && { sasl: { mechanism, credentials: () => within(ask, connectTimeoutMs, placeOf(url)) } }),
  });
}

/** Limited by the same timeout as the connection. */
async function within(
  ask: NonNullable<KafkaConnectionOptions["credentials"]>,
  timeoutMs: number,
  place: string,
): Promise<KafkaCredentials> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came within ${timeoutMs} ms`)), timeoutMs);
  });
  try {
    return await Promise.race([ask(), late]);
  } catch (cause) {
    if (cause instanceof ConfigError) throw cause;
    const text = `no credentials for ${place}: ${scrub((cause as Error).message)}; correct 'credentials'`;
    throw new TransportDownError("connect", text);
  } finally {
    clearTimeout(timer);
  }
}
