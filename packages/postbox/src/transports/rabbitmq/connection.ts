import type { Duplex } from "node:stream";
import { type Channel, type ChannelModel, connect, credentials, type SocketOptions } from "amqplib";
import { ConfigError, type PostboxError, TransportDownError } from "../../errors.js";
import { scrub } from "../../internal/scrub.js";
import { whenAborted } from "../../internal/when-aborted.js";
import { callback, count, type OptionRule, object, positive, text } from "../../options.js";
import { keepUndecodable } from "./undecodable.js";

/** Whom to be on the broker. */
export interface RabbitmqCredentials {
  readonly username: string;
  readonly password: string;
}

export interface RabbitmqConnectionOptions {
  /** `amqp://` or `amqps://`, with host, port and virtual host. */
  readonly url: string;
  /** Asked for each connection, for passwords that change. Defaults to what the URL says, or else `guest`. */
  readonly credentials?: () => RabbitmqCredentials | Promise<RabbitmqCredentials>;
  /** Shown in the broker's management. Defaults to `postbox`. */
  readonly connectionName?: string;
  /** A connection without any sign of life for twice as long is dead. Defaults to 10. */
  readonly heartbeatSeconds?: number;
  /** Defaults to 10,000. */
  readonly connectTimeoutMs?: number;
  /** For `amqps://`: as for `tls.connect`, such as `ca`, `cert` and `key`. Defaults to none. */
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

/** Where a URL leads, without who somebody is there. */
export function placeOf(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}

/**
 * Opens a connection. Rejects with a `TransportDownError` if the broker cannot be reached, and with a `ConfigError` if
 * it will never let us in. When the signal is aborted before that, it rejects at once, and closes the socket: a broker
 * that says nothing must not keep the process alive.
 */
export function openConnection(options: RabbitmqConnectionOptions, signal?: AbortSignal): Promise<ChannelModel> {
  if (signal === undefined) return open(options);
  const giveUp = new AbortController();
  const opening = open(options, giveUp.signal);
  return new Promise((resolve, reject) => {
    const cancel = whenAborted(signal, () => {
      giveUp.abort();
      // The client may never say what became of it.
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
    // Whoever uses it hears of its end by its channels; without a listener the process would end.
    connection.on("error", () => {});
    gatherWrites(streamOf(connection));
    keepUndecodable(connection);
    return connection;
  } catch (cause) {
    throw explained(cause, options);
  }
}

/** As bounded as the connecting itself. */
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
    const text = `no credentials for ${placeOf(url)}: ${scrub((cause as Error).message)}; mend what 'credentials' does`;
    throw new TransportDownError("connect", text);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Closes a channel, or a connection. Resolves also when the connection dies meanwhile, of which the library does not
 * tell whoever waits for an answer.
 */
export function close(open: Channel | ChannelModel): Promise<void> {
  return new Promise((resolve, reject) => {
    open.once("close", () => resolve());
    open.close().then(resolve, reject);
  });
}

/** Ends a connection that gives no answer: to close it in good order would wait for one. */
export function destroy(connection: ChannelModel): void {
  // With an error: the client does not notice a stream that ends without one, until its heart has not beaten for a
  // while.
  streamOf(connection).destroy(new Error("given up"));
}

/**
 * The client writes every frame by itself, and a call of the system costs more than the frame: what is written in one
 * go leaves in one.
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

/** It has no call for what is done with it here. */
function streamOf(connection: ChannelModel): Duplex {
  return (connection.connection as unknown as { readonly stream: Duplex }).stream;
}

/** What Node.js says of certificates that will not do; one that is out of date may be replaced any moment. */
const untrusted = /SELF_SIGNED|UNABLE_TO_(GET_ISSUER|VERIFY_LEAF)|CERT_(UNTRUSTED|REJECTED|REVOKED)|ALTNAME_INVALID/;

/** The library's own texts may hold the URL, and so the password. */
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
  // Why the broker ends the handshake there, the client does not tell: it may let us in later.
  if (/ConnectionClose|NOT[-_]ALLOWED/.test(message ?? "")) {
    const reasons =
      "there is no virtual host of that name, the user has no rights there, or there are too many connections";
    return new TransportDownError(
      "connect",
      `${place} does not let us in: ${reasons}; check the URL's path and the user's rights`,
    );
  }
  const why = typeof code === "string" ? code : (message ?? "no answer").replaceAll(/amqps?:\/\/\S+/g, place);
  return new TransportDownError("connect", `${place} cannot be reached: ${why}`);
}
