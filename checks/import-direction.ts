import { posix } from "node:path";
import { importsOf } from "./module-text.js";

/**
 * The layers of the library, from the lowest to the highest. A module may import from its own layer and from lower
 * ones. A file in `exports/` may only re-export.
 */
const layers: readonly (readonly string[])[] = [
  ["internal/", "errors.ts", "backoff.ts", "options.ts", "telemetry/events.ts"],
  ["message/"],
  ["event/"],
  ["transport.ts", "settle-once.ts", "admin.ts", "health.ts", "notifier.ts", "store.ts", "telemetry/"],
  ["publisher/", "router/"],
  ["outbox/", "relay/", "inbox/"],
  ["middleware/"],
  ["stores/", "transports/", "transactions/", "connect/", "messaging/", "schedule/"],
];

/**
 * The only folders that may import third-party packages; everything else runs without any driver. A schedule loads the
 * cron parser only when it has a cron expression, as connect loads a driver.
 */
const driverFolders = ["stores/", "transports/", "transactions/", "connect/", "schedule/"];

/** Lists the imports that break the layering of `modules`, whose keys are paths such as `message/codec.ts`. */
export function importViolations(modules: ReadonlyMap<string, string>): string[] {
  return [...modules].flatMap(([path, source]) =>
    importsOf(source).flatMap(({ specifier, reexportsAll }) => {
      const problem = specifier.startsWith(".")
        ? problemWithin(path, posix.join(posix.dirname(path), specifier).replace(/\.js$/, ".ts"), reexportsAll)
        : problemOutside(path, specifier);
      return problem ? [`${path} imports ${specifier}: ${problem}`] : [];
    }),
  );
}

function problemWithin(from: string, to: string, reexportsAll: boolean): string | undefined {
  const [fromLayer, toLayer] = [layerOf(from), layerOf(to)];
  if (to.startsWith("..")) return "it leaves the library";
  if (fromLayer === undefined && !isDoor(from))
    return "its folder has no place in the layers of checks/import-direction.ts";
  if (isDoor(to)) return "doors are for users";
  if (fromLayer === undefined) {
    return reexportsAll && to.startsWith("internal/") ? "internal modules are not exported wholesale" : undefined;
  }
  if (toLayer === undefined) return "its folder has no place in the layers of checks/import-direction.ts";
  if (toLayer > fromLayer) return "it points towards the roof";
  const kinds = [from, to].map((path) => path.split("/")[0]);
  if (kinds.includes("stores") && kinds.includes("transports")) return "stores and transports do not know each other";
  return undefined;
}

function problemOutside(from: string, specifier: string): string | undefined {
  if (specifier.startsWith("node:") || driverFolders.some((folder) => from.startsWith(folder))) return undefined;
  return "drivers and other packages belong into stores, transports, transactions, connect or schedule";
}

function layerOf(path: string): number | undefined {
  // The longest entry wins: telemetry/events.ts belongs to a lower layer than the rest of telemetry/.
  const places = layers.flatMap((entries, layer) => entries.map((entry) => ({ entry, layer })));
  const fitting = places.filter(({ entry }) => (entry.endsWith("/") ? path.startsWith(entry) : path === entry));
  return fitting.sort((a, b) => b.entry.length - a.entry.length)[0]?.layer;
}

function isDoor(path: string): boolean {
  return path.startsWith("exports/");
}
