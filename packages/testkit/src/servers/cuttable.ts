import { connect, createServer, type Socket } from "node:net";

/** A way to a server, for tests, that can be cut as when a process or a network dies. */
export interface Cuttable {
  readonly url: string;
  /**
   * From now on nothing that is sent arrives, and nobody is told: on the connections there are for ever, on others
   * until `mend`.
   */
  swallow(): void;
  /** Resets all connections, as a firewall does that forgot about them. */
  reset(): void;
  /** Cuts all connections, and lets no other one be made until `mend`. */
  cut(): void;
  mend(): void;
  close(): void;
}

export async function cuttable(url: string): Promise<Cuttable> {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  /** A connection that has lost some of what was said on it is of no use any more. */
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
