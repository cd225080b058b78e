import { connect } from "node:net";
import type { ClientBase } from "pg";

/** What a client of `pg` has beside its types. */
interface ClientParts {
  readonly host?: string;
  readonly port?: number;
  readonly processID?: number | null;
  readonly secretKey?: number | null;
  readonly connection?: { readonly stream?: { destroy?(): void } };
}

const cancelRequestCode = 80877102;
/** How long the connection is kept for it. */
const limitMs = 1000;

/**
 * Ends the statement that runs on this client, on the server, and then destroys the connection. The server is asked over a connection of
 * its own, as the protocol has it; a pooler knows whose statement is meant only as long as its client is there, so that goes last. If
 * there is no answer soon, nothing more is done: the server notices the lost connection by itself. Never rejects.
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
    // Nothing waits for the answer but this: it must not keep a process alive that wants to exit.
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
    // Not ended from here: PgBouncer 1.18 dies of a request whose sender has closed its side. The server closes it when it is done.
    socket.write(request);
    socket.resume();
  });
}
