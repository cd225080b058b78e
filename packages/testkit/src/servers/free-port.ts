import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/**
 * A TCP port of 127.0.0.1 that nothing listens on. It lies below the ephemeral ports of outgoing connections: one of
 * those could be taken while its server is down, and the server could not return to it.
 *
 * @example
 * ```ts
 * const port = await freePort();
 * ```
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const port = randomInt(20_000, 32_000);
    if (await isFree(port)) return port;
  }
  throw new Error("no free port between 20000 and 32000 on 127.0.0.1");
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen({ port, host: "127.0.0.1", exclusive: true }, () => server.close(() => resolve(true)));
  });
}
