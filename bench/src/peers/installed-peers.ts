import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Database } from "../database.js";
import type { Ending } from "../ending.js";
import { graphileWorker } from "./graphile-worker.js";
import type { Peer } from "./peer.js";
import { pgBoss } from "./pg-boss.js";
import { pgTransactionalOutbox } from "./pg-transactional-outbox.js";

/** What a peer is created from. Its module is untyped, since it is not a dependency of this workspace. */
export interface PeerSetup {
  readonly module: unknown;
  readonly version: string;
  readonly database: Database;
  readonly ending: Ending;
}

const folder = join(import.meta.dirname, "../../../heavy/bench-peers");
const installLimitMs = 3 * 60_000;

const makers: Readonly<Record<string, (setup: PeerSetup) => Promise<Peer>>> = {
  "graphile-worker": graphileWorker,
  "pg-boss": pgBoss,
  "pg-transactional-outbox": pgTransactionalOutbox,
};

/** Returns all peers. If they cannot be installed, it reports that and returns none, and the run continues. */
export async function installedPeers(
  database: Database,
  ending: Ending,
  tell: (text: string) => void,
): Promise<readonly Peer[]> {
  try {
    if (!existsSync(join(folder, "node_modules", ".package-lock.json"))) {
      tell("installing the peers: npm ci in heavy/bench-peers");
      await promisify(execFile)("npm", ["ci", "--no-audit", "--no-fund"], { cwd: folder, timeout: installLimitMs });
    }
  } catch (error) {
    tell(`✗ the peers could not be installed, so nothing is compared with them: ${firstWords(error)}`);
    return [];
  }
  const require = createRequire(join(folder, "package.json"));
  const peers: Peer[] = [];
  for (const [name, make] of Object.entries(makers)) {
    const { version } = JSON.parse(readFileSync(join(folder, "node_modules", name, "package.json"), "utf8"));
    const peer = await make({ module: require(name), version, database, ending });
    tell(`${name} ${version}: ${peer.settings}`);
    peers.push(peer);
  }
  return peers;
}

/** The first error lines of npm's long output. */
function firstWords(error: unknown): string {
  const { stderr, message } = error as Partial<Record<"stderr" | "message", string>>;
  const lines = stderr?.split("\n").filter((line) => line.startsWith("npm error")) ?? [];
  return lines.slice(0, 4).join("; ") || String(message);
}
