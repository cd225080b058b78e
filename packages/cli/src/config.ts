import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { RelayOptions } from "postbox";
import { wrongUse } from "./failure.js";
import { loadModule } from "./load-module.js";

/** What `postbox.config.ts` may set. Flags win over variables, and variables over this file. */
export interface PostboxConfig {
  /** The URL of the database, such as `postgres://user@host/database`. */
  readonly database?: string;
  /** The URL of the broker, such as `amqp://host`. */
  readonly broker?: string;
  /** The schema of Postbox's tables. Defaults to "postbox". */
  readonly schema?: string;
  /** Options of `postbox relay`. Its flags win. */
  readonly relay?: Omit<RelayOptions, "telemetry" | "runtime" | "notifier">;
}

/**
 * Types the configuration of the `postbox` command.
 *
 * @example
 * ```ts
 * export default defineConfig({ database: "postgres://localhost/shop", broker: "amqp://localhost" });
 * ```
 */
export function defineConfig(config: PostboxConfig): PostboxConfig {
  return config;
}

const usualFiles = ["ts", "mts", "js", "mjs"].map((ending) => `postbox.config.${ending}`);
const known: ReadonlySet<string> = new Set(["database", "broker", "schema", "relay"] satisfies (keyof PostboxConfig)[]);

/** Loads the named file, or the usual one if there is one. */
export async function loadConfig(cwd: string, named: string | undefined): Promise<PostboxConfig> {
  const file = named ?? usualFiles.find((name) => existsSync(resolve(cwd, name)));
  if (file === undefined) return {};
  const config = (await loadModule(cwd, file, "configuration")).default;
  if (typeof config !== "object" || config === null) {
    throw wrongUse(`${file} must export its configuration: export default defineConfig({ … })`);
  }
  const unknown = Object.keys(config).find((name) => !known.has(name));
  if (unknown !== undefined) throw wrongUse(`${file}: unknown option '${unknown}'; known are ${[...known].join(", ")}`);
  return config as PostboxConfig;
}
