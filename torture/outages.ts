import type { DisposableServer } from "@postbox/testkit/servers";
import pg from "pg";
import { expect } from "vitest";

/** A way in which a PostgreSQL, or what stands in front of it, goes away under its clients. */
export interface Outage {
  readonly title: string;
  /** Resolves when every connection is lost. */
  begin(server: DisposableServer): Promise<void>;
  /** Resolves when the server takes connections again. */
  end(server: DisposableServer): Promise<void>;
}

const restart = (server: DisposableServer) => server.restart();

export const killed: Outage = { title: "a killed server", begin: (server) => server.kill(), end: restart };

const stopped: Outage = { title: "a shutdown in good order", begin: (server) => server.halt(), end: restart };

export const poolerOutages: readonly Outage[] = [stopped, killed];

export const databaseOutages: readonly Outage[] = [
  stopped,
  // Sessions are cut in the middle of whatever they do, and the next start recovers from the log.
  { title: "a shutdown at once", begin: (server) => server.halt("SIGQUIT"), end: restart },
  killed,
  { title: "killed sessions", begin: killSessions, end: untilItAnswers },
];

/** A session that dies may have left anything in the shared memory: the server starts anew by itself, and recovers. */
async function killSessions({ url }: DisposableServer): Promise<void> {
  const client = new pg.Client(url);
  const cut = new Promise<void>((resolve) => client.once("error", () => resolve()));
  await client.connect();
  const { rows } = await client.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'");
  for (const { pid } of rows) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // The server has seen the first of them die, and ended this one itself.
    }
  }
  await cut;
}

async function untilItAnswers({ url }: DisposableServer): Promise<void> {
  const answer = async () => {
    const client = new pg.Client(url);
    client.on("error", () => {});
    await client.connect();
    await client.end();
  };
  await expect.poll(answer).toBeUndefined();
}
