import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { gate } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import pg from "pg";
import { expect, it } from "vitest";
import { runtimeWith } from "../../internal/runtime.js";
import { listen } from "./listen.js";
import { ownConnections } from "./own-connection.js";

/** A proxy between client and server that can fall silent without closing either connection. */
async function silenceableProxy(target: URL) {
  const sockets = new Set<Socket>();
  let silent = false;
  const proxy = createServer((near) => {
    const far = connect(Number(target.port), target.hostname);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on("data", (bytes) => silent || to.write(bytes));
      from.on("end", () => silent || to.end());
      from.on("error", () => {});
      from.on("close", () => sockets.delete(from));
    }
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const url = new URL(target);
  url.port = String((proxy.address() as AddressInfo).port);
  return {
    url: url.href,
    silence() {
      silent = true;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => proxy.close(resolve));
    },
  };
}

describeOnEach("postgres", ({ url }) => {
  const timing = { checkEveryMs: 20, limitMs: 500, runtime: runtimeWith() };
  const pool = new pg.Pool({ connectionString: url });

  it("detects a dead connection, because its own notification does not arrive", async () => {
    const proxy = await silenceableProxy(new URL(url));
    const open = ownConnections(pool, proxy.url);
    if (open === undefined) throw new Error("no connections");
    const listening = gate();
    const listener = { listening: () => listening.open(), notified() {} };
    // Long enough to connect on a busy machine; only the following steps have to be fast.
    const stop = new AbortController();
    const limitMs = 2_000;
    const done = listen({ ...timing, limitMs, open, channel: "silence", listener }, stop.signal);
    await Promise.race([listening.opened, done]);
    proxy.silence();
    await expect(done).rejects.toThrow(/was not heard within 2000 ms|Query read timeout/);
    await proxy.close();
  });

  it("does not take a server for listening that never lets it hear itself, as poolers do", async () => {
    const open = ownConnections(pool);
    if (open === undefined) throw new Error("no connections");
    let told = false;
    const listener = {
      listening() {
        told = true;
      },
      notified() {},
    };
    const deaf: typeof open = async (...args) => ({ ...(await open(...args)), onNotification() {} });
    const session = listen({ ...timing, open: deaf, channel: "deaf", listener }, new AbortController().signal);
    await expect(session).rejects.toThrow("was not heard within 500 ms: the connection is dead, or ends at a pooler");
    expect(told).toBe(false);
  });

  it("ends at once when aborted, even while it connects to a server that never answers", async () => {
    const nobody = createServer(() => {});
    await new Promise<void>((resolve) => nobody.listen(0, "127.0.0.1", resolve));
    const directUrl = `postgres://nobody@127.0.0.1:${(nobody.address() as AddressInfo).port}/x`;
    const open = ownConnections(pool, directUrl);
    if (open === undefined) throw new Error("no connections");
    const stop = new AbortController();
    const listener = { listening() {}, notified() {} };
    const reached = new Promise((resolve) => nobody.once("connection", resolve));
    const session = listen({ ...timing, limitMs: 60_000, open, channel: "x", listener }, stop.signal);
    await reached;
    stop.abort();
    await session;
    nobody.close();
  });
});
