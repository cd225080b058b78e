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
const limitMs = 5000;

/**
 * Ends the statement that runs on this client, on the server, and destroys the connection. The server is asked over a connection of
 * its own, as the protocol has it, which also works through PgBouncer. If the server does not answer, nothing more is done:
 * it notices the lost connection by itself. Never throws.
 */
export function cancelStatement(client: ClientBase): void {
  const { host, port, processID, secretKey, connection } = client as unknown as ClientParts;
  connection?.stream?.destroy?.();
  if (!host || !port || typeof processID !== "number" || typeof secretKey !== "number") return;
  const socket = host.startsWith("/") ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
  socket.on("error", () => {});
  socket.setTimeout(limitMs, () => socket.destroy());
  // Nothing waits for the answer: it must not keep a process alive that wants to exit.
  socket.unref();
  const request = Buffer.alloc(16);
  request.writeInt32BE(16, 0);
  request.writeInt32BE(cancelRequestCode, 4);
  request.writeInt32BE(processID, 8);
  request.writeInt32BE(secretKey, 12);
  socket.end(request);
}
