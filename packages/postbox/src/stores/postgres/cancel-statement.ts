import { connect } from "node:net";
import type { ClientBase } from "pg";

/** What a `pg` client has beyond its types. */
interface ClientParts {
  readonly host?: string;
  readonly port?: number;
  readonly processID?: number | null;
  readonly secretKey?: number | null;
  readonly connection?: { readonly stream?: { destroy?(): void } };
}

const cancelRequestCode = 80877102;
/** How long the connection is kept open for the cancel request. */
const limitMs = 1000;

/**
 * Cancels the statement that runs on this client, then destroys the connection. As the protocol requires, the cancel
 * request uses another connection. A pooler can only identify the statement while its client is connected, so the
 * client goes last.
 *
 * If there is no answer soon, it stops there: the server notices the lost connection by itself. Never rejects.
 */
export async function cancelStatement(client: ClientBase): Promise<void> {
  const { host, port, processID, secretKey, connection } = client as unknown as ClientParts;
  if (host && port && typeof processID === "number" && typeof secretKey === "number") {
    await requestCancel(host, port, processID, secretKey);
  }
  connection?.stream?.destroy?.();
}

function requestCancel(host: string, port: number, processID: number, secretKey: number): Promise<void> {
  return new Promise((resolve) => {
    const socket = host.startsWith("/") ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
    // Only this function waits for the answer, which must not keep a process alive that wants to exit.
    const timer = setTimeout(() => socket.destroy(), limitMs);
    timer.unref();
    socket.unref();
    socket.on("error", () => {});
    socket.on("close", () => {
      clearTimeout(timer);
      resolve();
    });
    const request = Buffer.alloc(16);
    request.writeInt32BE(16, 0);
    request.writeInt32BE(cancelRequestCode, 4);
    request.writeInt32BE(processID, 8);
    request.writeInt32BE(secretKey, 12);
    // Do not end the socket here: PgBouncer 1.18 crashes on a cancel request whose sender has closed its side. The
    // server closes it when it is done.
    socket.write(request);
    socket.resume();
  });
}
