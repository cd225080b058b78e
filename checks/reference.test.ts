import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { compile, root } from "./snippets.js";

interface Export {
  readonly entry: string;
  readonly name: string;
  readonly kind: string;
  readonly summary: string;
  readonly examples: readonly string[];
}

const given = readFileSync(join(root, "checks", "reference", "given.ts"), "utf8");
const folder = join(root, ".tmp", "reference");
let exports: Export[] = [];

// It fails on a link in a comment that leads nowhere.
beforeAll(() => {
  const program = join(root, "heavy", "reference", "reference.mjs");
  const listed = execFileSync(process.execPath, [program, "--json"], { encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
  exports = JSON.parse(listed);
}, 60_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

it("every export begins with a sentence", () => {
  expect(exports.length).toBeGreaterThan(400);
  expect(exports.filter(({ summary }) => !/^\S.*\.(\s|$)/s.test(summary)).map(fullName)).toEqual([]);
});

it("every function has an example, and all examples compile", { timeout: 60_000 }, async () => {
  const functions = exports.filter(({ kind }) => kind === "Function");
  expect(functions.filter(({ examples }) => examples.length === 0).map(fullName)).toEqual([]);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  copyFileSync(join(root, "checks", "reference", "given.ts"), join(folder, "given.ts"));
  const programs = exports.flatMap(({ examples, ...from }) =>
    examples.map((example, at) => [`${fullName(from).replace(/\W+/g, "-")}-${at}.ts`, programOf(example, from)]),
  );
  expect(programs.length).toBeGreaterThan(110);
  await compile(folder, Object.fromEntries(programs));
});

function fullName({ entry, name }: Pick<Export, "entry" | "name">): string {
  return `${entry} ${name}`;
}

/** The example with the imports that it omits: of its own entry point, of the given module, of other entry points. */
function programOf(example: string, from: Pick<Export, "entry">): string {
  const code = /```ts\n(.*?)\n```/s.exec(example)?.[1] ?? "this example is no ts code";
  const own = new Set([...code.matchAll(/\b(?:const|class|function) (\w+)|\{ ([\w, ]+) \} = /g)].flatMap(declared));
  const used = new Set(code.match(/[A-Za-z]\w*/g)?.filter((word) => !own.has(word)));
  const imports = new Map<string, string[]>();
  const import_ = (name: string, module: string) => {
    if (!used.delete(name)) return;
    imports.set(module, [...(imports.get(module) ?? []), name]);
  };
  for (const { name } of exports.filter(({ entry }) => entry === from.entry)) import_(name, from.entry);
  for (const name of namesOf(given)) import_(name, "./given.js");
  for (const { name, entry } of exports) import_(name, entry);
  const lines = [...imports].map(([module, names]) => `import { ${names.join(", ")} } from "${module}";`);
  return [...lines, "export {};", code, ""].join("\n");
}

function declared([, name, names]: RegExpMatchArray): string[] {
  return name === undefined ? (names ?? "").split(", ") : [name];
}

/** The names that a module exports. */
function namesOf(module: string): string[] {
  const declarations = module.matchAll(/^export (?:declare )?(?:const|function|type) (\w+)/gm);
  const lists = [...module.matchAll(/^export \{ (.+) \}/gm)].flatMap(([, names = ""]) => names.split(", "));
  return [...declarations].map(([, name = ""]) => name).concat(lists.map((name) => name.replace(/^.* as /, "")));
}
