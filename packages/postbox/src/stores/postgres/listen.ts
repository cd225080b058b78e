import { PostboxError } from "../../errors.js";
import { type Runtime, sleep } from "../../internal/runtime.js";
import { uuidv7Generator } from "../../internal/uuidv7.js";
import { withTimeout } from "../../internal/with-timeout.js";
import type { NotificationListener } from "../../notifier.js";
import type { OpenConnection, OwnConnection } from "./own-connection.js";

export interface ListenOptions {
  readonly open: OpenConnection;
  readonly channel: string;
  readonly listener: NotificationListener;
  /** The pause between two checks. */
  readonly checkEveryMs: number;
  /** The timeout of each step: to connect, to run a statement, and to receive its own notification. */
  readonly limitMs: number;
  readonly runtime: Runtime;
}

/**
 * Listens on its own connection until the signal is aborted. It regularly notifies its own channel and expects to
 * receive that notification. Otherwise a dead socket, a lost LISTEN, and a pooler that switches sessions would all just
 * be silent.
 */
export async function listen(options: ListenOptions, signal: AbortSignal): Promise<void> {
  try {
    const connection = await options.open(`listener of ${options.channel}`, options.limitMs, signal);
    try {
      await listenOn(connection, options, signal);
    } finally {
      await connection.close();
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

async function listenOn(connection: OwnConnection, options: ListenOptions, signal: AbortSignal): Promise<void> {
  const { channel, listener, checkEveryMs, limitMs, runtime } = options;
  const nextNonce = uuidv7Generator(runtime);
  let awaited = { nonce: "", heard: () => {} };
  // Notifications have no payload. Checks of other listeners have a payload that differs from this one's.
  connection.onNotification(({ payload = "" }) => {
    if (payload === "") listener.notified();
    else if (payload === awaited.nonce) awaited.heard();
  });

  const hearOneself = () =>
    new Promise<void>((heard, failed) => {
      awaited = { nonce: nextNonce(), heard };
      connection.query("SELECT pg_notify($1, $2)", [channel, awaited.nonce]).catch(failed);
    });
  const silent = () =>
    new PostboxError(
      "store-failed",
      `what was notified on ${channel} was not heard within ${limitMs} ms: ` +
        "the connection is dead, or ends at a pooler; " +
        "give postgresNotifier a 'directUrl' if it is the latter",
    );

  const over = new AbortController();
  const end = () => over.abort(signal.reason);
  signal.addEventListener("abort", end, { once: true });
  void connection.broken.then((error) => over.abort(error));
  try {
    await connection.query(`LISTEN "${channel}"`);
    for (let told = false; !signal.aborted; told = true) {
      await withTimeout(runtime, limitMs, silent, hearOneself, over.signal);
      if (!told) listener.listening();
      await sleep(runtime, checkEveryMs, over.signal);
    }
  } finally {
    signal.removeEventListener("abort", end);
  }
}
