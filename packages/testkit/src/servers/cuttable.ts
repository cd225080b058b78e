import { connect, createServer, type Socket } from "node:net";

/** A proxy to a server whose connections tests can break, as a crash or a network failure does. */
export interface Cuttable {
  readonly url: string;
  /**
   * Silently discards everything that is sent from now on: on existing connections for ever, on new ones until `mend`.
   */
  swallow(): void;
  /** Resets all connections, like a firewall that has lost its state. */
  reset(): void;
  /** Cuts all connections, and refuses new ones until `mend`. */
  cut(): void;
  mend(): void;
  close(): void;
}

/**
 * Starts a TCP proxy whose connections a test can cut, reset or silence.
 *
 * @example
 * ```ts
 * const proxy = await cuttable("postgres://localhost/shop");
 * const store = postgresStore({ pool: new Pool({ connectionString: proxy.url }) });
 * proxy.cut(); // every connection is lost
 * proxy.close();
 * ```
 */
export async function cuttable(url: string): Promise<Cuttable> {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  /** Connections that have lost data. They stay silent even after `mend`. */
  const deaf = new WeakSet<Socket>();
  let state: "open" | "deaf" | "cut" = "open";
  const server = createServer((client) => {
    if (state === "cut") return void client.destroy();
    const broker = connect(Number(target.port || 5672), target.hostname);
    for (const [from, to] of [
      [client, broker],
      [broker, client],
    ] as const) {
      sockets.add(from);
      if (state === "deaf") deaf.add(from);
      from.on("error", () => {});
      from.on("data", (data) => deaf.has(from) || to.write(data));
      from.on("close", () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const through = new URL(url);
  through.hostname = "127.0.0.1";
  through.port = String((server.address() as { port: number }).port);
  const drop = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: through.href,
    swallow() {
      state = "deaf";
      for (const socket of sockets) deaf.add(socket);
    },
    reset() {
      for (const socket of sockets) socket.resetAndDestroy();
    },
    cut() {
      state = "cut";
      drop();
    },
    mend() {
      state = "open";
    },
    close() {
      drop();
      server.close();
    },
  };
}
