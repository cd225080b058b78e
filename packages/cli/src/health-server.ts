import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Store } from "postbox";
import { exitCodes } from "./exit-codes.js";
import { CliError } from "./failure.js";
import { plainJson } from "./plain-text.js";

export interface HealthServerOptions {
  /** 0 for any free port. */
  readonly port: number;
  readonly host: string;
  readonly store: Pick<Store, "health">;
  /** Whether the relay runs and is not stopping. */
  isReady(): boolean;
}

export interface HealthServer {
  readonly url: string;
  close(): Promise<void>;
}

/**
 * Answers `/live` while the process runs, and `/ready` with 200 while the relay runs and its database can be reached,
 * else with 503. The body of `/ready` lists the codes of the outbox's problems, and nothing that is stored.
 */
export async function healthServer({ port, host, store, isReady }: HealthServerOptions): Promise<HealthServer> {
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? "/", "http://health").pathname;
    if (path === "/live") answer(response, 200, { live: true });
    else if (path === "/ready") void ready(response);
    else answer(response, 404, { paths: ["/live", "/ready"] });
  });

  async function ready(response: ServerResponse): Promise<void> {
    const { problems } = await store.health({ box: "outbox", timeoutMs: 3_000 });
    const codes = problems.map(({ code }) => code);
    const isAway = problems.some(({ code }) => away.has(code));
    answer(response, isReady() && !isAway ? 200 : 503, { ready: isReady() && !isAway, problems: codes });
  }

  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, resolve);
  }).catch((error: Error) => {
    throw new CliError(
      exitCodes.usage,
      `cannot serve /ready on ${host}:${port}: ${error.message}; choose another port`,
    );
  });
  // A request that stays open must not keep a stopped relay alive.
  server.unref();
  const { address, port: bound } = server.address() as AddressInfo;
  return {
    url: `http://${address.includes(":") ? `[${address}]` : address}:${bound}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Problems with which a relay cannot work. A backlog is no reason to restart it. */
const away: ReadonlySet<string> = new Set([
  "unreachable",
  "store-refused",
  "schema-missing",
  "schema-outdated",
  "schema-newer",
]);

function answer(response: ServerResponse, code: number, body: object): void {
  response.writeHead(code, { "content-type": "application/json", "cache-control": "no-store" });
  response.end(`${plainJson(body)}\n`);
}
