import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { importViolations } from "./import-direction.js";

const library = join(import.meta.dirname, "..", "packages", "postbox", "src");

test("the library's imports point one way", () => {
  const paths = readdirSync(library, { recursive: true, encoding: "utf8" })
    .map((path) => path.replaceAll("\\", "/"))
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"));
  expect(paths).toContain("exports/index.ts");
  const modules = new Map(paths.map((path) => [path, readFileSync(join(library, path), "utf8")]));
  expect(importViolations(modules)).toEqual([]);
});

describe("the check itself finds", () => {
  const planted: [what: string, path: string, source: string, problem: string][] = [
    ["a look upwards", "message/codec.ts", 'import { x } from "../router/router.js";', "towards the roof"],
    ["a type, too", "store.ts", 'import type { X } from "./outbox/outbox.js";', "towards the roof"],
    ["an import over many lines", "event/e.ts", 'import {\n  a,\n  b,\n} from "../store.js";', "towards the roof"],
    ["a dynamic import", "store.ts", 'const x = await import("./stores/memory/m.js");', "towards the roof"],
    ["a re-export", "errors.ts", 'export * from "./message/message.js";', "towards the roof"],
    ["the rest of telemetry", "event/e.ts", 'import { x } from "../telemetry/prometheus.js";', "towards the roof"],
    ["a store and a transport", "stores/a/a.ts", 'import { x } from "../../transports/a/b.js";', "know each other"],
    ["a driver in the core", "router/router.ts", 'import pg from "pg";', "drivers"],
    ["a driver without a name", "router/router.ts", 'import "reflect-metadata";', "drivers"],
    ["internals for everybody", "exports/index.ts", 'export * from "../internal/lane.js";', "wholesale"],
    ["a door used from within", "router/router.ts", 'import { x } from "../exports/index.js";', "doors"],
    ["a file in the root", "more.ts", 'export { x } from "./errors.js";', "no place"],
    ["a way out", "errors.ts", 'import { x } from "../../testkit/src/index.js";', "leaves"],
    ["a new folder", "helping/h.ts", 'import { x } from "../errors.js";', "no place"],
    ["an import of a new folder", "outbox/outbox.ts", 'import { x } from "../helping/h.js";', "no place"],
  ];
  test.each(planted)("%s", (_, path, source, problem) => {
    expect(importViolations(new Map([[path, source]]))).toEqual([expect.stringContaining(problem)]);
  });

  const innocent: [what: string, path: string, source: string][] = [
    ["downwards", "router/router.ts", 'import { x } from "../message/codec.js";'],
    ["within a layer", "outbox/outbox.ts", 'import { x } from "../inbox/inbox.js";'],
    ["telemetry/events from below", "message/m.ts", 'import type { X } from "../telemetry/events.js";'],
    ["a driver in a store", "stores/postgres/store.ts", 'import type { Pool } from "pg";'],
    ["Node itself", "internal/uuid.ts", 'import { randomBytes } from "node:crypto";'],
    [
      "a door that opens on both",
      "exports/memory.ts",
      'export * from "../stores/m.js";\nexport * from "../transports/m.js";',
    ],
    ["an example in a comment", "errors.ts", '/**\n * ```ts\nimport pg from "pg";\n * ```\n */'],
  ];
  test.each(innocent)("nothing wrong with %s", (_, path, source) => {
    expect(importViolations(new Map([[path, source]]))).toEqual([]);
  });
});
