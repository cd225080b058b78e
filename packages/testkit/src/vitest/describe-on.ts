import { describe, inject, test } from "vitest";
import type { FoundServer, TestServer } from "./test-server.js";

/**
 * A `describe` whose tests the final report of the run counts for `server`.
 *
 * @example
 * ```ts
 * describeOn({ title: "PGlite" }, () => it("commits", async () => {}));
 * ```
 */
export function describeOn(server: TestServer, tests: () => void): void {
  describe(server.title, { meta: { server } }, tests);
}

/**
 * Runs `tests` on every server of that service in this run: for `postgres`, on the embedded one and the one found.
 * Without any, a skipped test says so.
 *
 * @example
 * ```ts
 * describeOnEach("postgres", ({ url }) => {
 *   it("commits", async () => {
 *     const pool = new Pool({ connectionString: url });
 *     await pool.end();
 *   });
 * });
 * ```
 */
export function describeOnEach(
  service: "postgres" | "pgbouncer" | "mariadb" | "rabbitmq" | "kafka",
  tests: (server: FoundServer) => void,
): void {
  const servers = inject("servers").found.filter((server) => server.service === service);
  if (servers.length === 0) test.skip(`no ${service} in this run`);
  for (const server of servers) describeOn(server, () => tests(server));
}
