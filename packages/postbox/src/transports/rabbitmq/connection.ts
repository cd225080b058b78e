import { type ChannelModel, connect, credentials, type SocketOptions } from "amqplib";
import { ConfigError, type PostboxError, TransportDownError } from "../../errors.js";
import { callback, count, type OptionRule, object, positive, text } from "../../options.js";

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
  /** For `amqps://`: as for `tls.connect`, such as `ca`, `cert` and `key`. */
  readonly tls?: Readonly<Record<string, unknown>>;
}

const urlRule: OptionRule = {
  expected: "a URL that begins with amqp:// or amqps://",
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
 * Opens a connection. Rejects with a `TransportDownError` if the broker cannot be reached, and with a `ConfigError` if it will never
 * let us in.
 */
export async function openConnection(options: RabbitmqConnectionOptions): Promise<ChannelModel> {
  const { url, heartbeatSeconds = 10, connectTimeoutMs = 10_000, connectionName = "postbox", tls } = options;
  const target = new URL(url);
  target.searchParams.set("heartbeat", String(heartbeatSeconds));
  const own = await options.credentials?.();
  const socket: SocketOptions & Record<string, unknown> = {
    ...tls,
    noDelay: true,
    timeout: connectTimeoutMs,
    clientProperties: { connection_name: connectionName },
    ...(own && { credentials: credentials.plain(own.username, own.password) }),
  };
  try {
    const connection = await connect(target.href, socket);
    // Whoever uses it hears of its end by its channels; without a listener the process would end.
    connection.on("error", () => {});
    return connection;
  } catch (cause) {
    throw explained(cause, placeOf(url));
  }
}

/** Ends a connection that gives no answer: to close it in good order would wait for one. */
export function destroy(connection: ChannelModel): void {
  // It has no call for that.
  const { stream } = connection.connection as unknown as { readonly stream?: { destroy(): void } };
  stream?.destroy();
}

/** The library's own texts may hold the URL, and so the password. */
function explained(cause: unknown, place: string): PostboxError {
  const { message, code } = cause as { readonly message?: string; readonly code?: string | number };
  if (code === 403 || /ACCESS[-_]REFUSED/.test(message ?? "")) {
    return new ConfigError(
      "transport-refused",
      `${place} refuses these credentials; check user, password and their rights`,
    );
  }
  if (code === 530 || /NOT[-_]ALLOWED/.test(message ?? "")) {
    return new ConfigError(
      "transport-refused",
      `${place} does not let this user into this virtual host, or has none of that name; check the URL's path and the user's rights`,
    );
  }
  const why = typeof code === "string" ? code : (message ?? "no answer").replaceAll(/amqps?:\/\/\S+/g, place);
  return new TransportDownError("connect", `${place} cannot be reached: ${why}`);
}
