import type { Duplex } from "node:stream";
import { type Channel, type ChannelModel, connect, credentials, type SocketOptions } from "amqplib";
import { ConfigError, type PostboxError, TransportDownError } from "../../errors.js";
import { scrub } from "../../internal/scrub.js";
import { whenAborted } from "../../internal/when-aborted.js";
import { callback, count, type OptionRule, object, positive, text } from "../../options.js";
import { keepUndecodable } from "./undecodable.js";

/** The user of a connection. */
export interface RabbitmqCredentials {
  readonly username: string;
  readonly password: string;
}

/** The options of every connection to RabbitMQ. */
export interface RabbitmqConnectionOptions {
  /** `amqp://` or `amqps://`, with host, port and virtual host. */
  readonly url: string;
  /**
   * Called for each connection, for passwords that change. Defaults to the user and password of the URL, or else
   * `guest`.
   */
  readonly credentials?: () => RabbitmqCredentials | Promise<RabbitmqCredentials>;
  /** Shown in RabbitMQ's management. Defaults to `postbox`. */
  readonly connectionName?: string;
  /** A connection that is silent for twice as long counts as lost. Defaults to 10. */
  readonly heartbeatSeconds?: number;
  /** Defaults to 10,000. */
  readonly connectTimeoutMs?: number;
  /** For `amqps://`: options of `tls.connect`, such as `ca`, `cert` and `key`. Defaults to none. */
  readonly tls?: Readonly<Record<string, unknown>>;
}

const urlRule: OptionRule = {
  expected: "a URL that begins with amqp:// or amqps://",
  secret: true,
  test: (value) => typeof value === "string" && /^amqps?:\/\//.test(value) && URL.canParse(value),
};

export const connectionRules = {
  url: urlRule,
  credentials: callback,
  connectionName: text,
  heartbeatSeconds: count,
  connectTimeoutMs: positive,
  tls: object,
};

/** The broker's address, without credentials. */
export function placeOf(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}

/**
 * Opens a connection. Rejects with a `TransportDownError` if the broker cannot be reached, and with a `ConfigError` if
 * no retry can succeed, such as for wrong credentials. If the signal is aborted first, it rejects at once and closes
 * the socket: a broker that does not answer must not keep the process alive.
 */
export function openConnection(options: RabbitmqConnectionOptions, signal?: AbortSignal): Promise<ChannelModel> {
  if (signal === undefined) return open(options);
  const giveUp = new AbortController();
  const opening = open(options, giveUp.signal);
  return new Promise((resolve, reject) => {
    const cancel = whenAborted(signal, () => {
      giveUp.abort();
      // The client may never settle it.
      opening.then(destroy, () => {});
      reject(signal.reason);
    });
    opening.finally(cancel).then(resolve, reject);
  });
}

async function open(options: RabbitmqConnectionOptions, giveUp?: AbortSignal): Promise<ChannelModel> {
  const { url, heartbeatSeconds = 10, connectTimeoutMs = 10_000, connectionName = "postbox", tls } = options;
  const target = new URL(url);
  target.searchParams.set("heartbeat", String(heartbeatSeconds));
  const own = await credentialsOf(options, connectTimeoutMs);
  const socket: SocketOptions & Record<string, unknown> = {
    ...tls,
    ...(giveUp && { signal: giveUp }),
    noDelay: true,
    timeout: connectTimeoutMs,
    clientProperties: { connection_name: connectionName },
    ...(own && { credentials: credentials.plain(own.username, own.password) }),
  };
  try {
    const connection = await connect(target.href, socket);
    // Its user learns of the end through its channels. Without a listener, the error would end the process.
    connection.on("error", () => {});
    gatherWrites(streamOf(connection));
    keepUndecodable(connection);
    return connection;
  } catch (cause) {
    throw explained(cause, options);
  }
}

/** Limited by the same timeout as the connection. */
async function credentialsOf(
  { credentials: ask, url }: RabbitmqConnectionOptions,
  timeoutMs: number,
): Promise<RabbitmqCredentials | undefined> {
  if (ask === undefined) return undefined;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came within ${timeoutMs} ms`)), timeoutMs);
  });
  try {
    return await Promise.race([ask(), late]);
  } catch (cause) {
    const text = `no credentials for ${placeOf(url)}: ${scrub((cause as Error).message)}; correct 'credentials'`;
    throw new TransportDownError("connect", text);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Closes a channel or a connection. Also resolves if the connection is lost meanwhile, in which case the client leaves
 * callers waiting.
 */
export function close(open: Channel | ChannelModel): Promise<void> {
  return new Promise((resolve, reject) => {
    open.once("close", () => resolve());
    open.close().then(resolve, reject);
  });
}

/** Ends a connection that does not answer: a graceful close would wait for its answer. */
export function destroy(connection: ChannelModel): void {
  // With an error: without one, the client notices only when heartbeats are missing.
  streamOf(connection).destroy(new Error("given up"));
}

/**
 * The client writes each frame on its own, and a system call costs more than the frame. Frames that are written in one
 * turn are sent together.
 */
function gatherWrites(stream: Duplex): void {
  const write = stream.write.bind(stream) as Duplex["write"];
  let corked = false;
  const uncork = () => {
    corked = false;
    stream.uncork();
  };
  stream.write = ((...given: Parameters<Duplex["write"]>) => {
    if (!corked) {
      corked = true;
      stream.cork();
      process.nextTick(uncork);
    }
    return write(...given);
  }) as Duplex["write"];
}

/** The client has no public way to reach its stream. */
function streamOf(connection: ChannelModel): Duplex {
  return (connection.connection as unknown as { readonly stream: Duplex }).stream;
}

/**
 * Node.js's codes of certificates that stay invalid. An expired one is not among them, since it may be renewed at any
 * moment.
 */
const untrusted = /SELF_SIGNED|UNABLE_TO_(GET_ISSUER|VERIFY_LEAF)|CERT_(UNTRUSTED|REJECTED|REVOKED)|ALTNAME_INVALID/;

/** The client's own texts may contain the URL, and so the password. */
function explained(cause: unknown, { url, credentials: ask }: RabbitmqConnectionOptions): PostboxError {
  const place = placeOf(url);
  const { message, code } = cause as { readonly message?: string; readonly code?: string | number };
  if (code === 403 || /ACCESS[-_]REFUSED/.test(message ?? "")) {
    const { username, password } = new URL(url);
    const advice =
      ask === undefined && username !== "" && password === ""
        ? "the URL names a user and no password, as in amqp://user:password@host"
        : "check user, password and their rights";
    return new ConfigError("transport-refused", `${place} refuses these credentials; ${advice}`);
  }
  if (typeof code === "string" && untrusted.test(code)) {
    return new ConfigError(
      "transport-refused",
      `the certificate of ${place} is not trusted here (${code}); give its authority as tls.ca, and a host name ` +
        "that it stands for",
    );
  }
  // The client does not say why the broker ended the handshake there, and a later attempt may succeed.
  if (/ConnectionClose|NOT[-_]ALLOWED/.test(message ?? "")) {
    const reasons =
      "there is no virtual host of that name, the user has no rights there, or there are too many connections";
    return new TransportDownError(
      "connect",
      `${place} refuses the connection: ${reasons}; check the URL's path and the user's rights`,
    );
  }
  const why = typeof code === "string" ? code : (message ?? "no answer").replaceAll(/amqps?:\/\/\S+/g, place);
  return new TransportDownError("connect", `${place} cannot be reached: ${why}`);
}
