import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { exportedNames } from "./module-text.js";

const packages = join(import.meta.dirname, "..", "packages");

function namesOf(file: string): string[] {
  return exportedNames(readFileSync(file, "utf8"), (specifier) =>
    namesOf(join(dirname(file), specifier.replace(/\.js$/, ".ts"))),
  );
}

/** Lists every entry of the package's `exports` with the names that it exports. */
function surfaceOf(folder: string): string {
  const { name, exports } = JSON.parse(readFileSync(join(packages, folder, "package.json"), "utf8"));
  return Object.entries<{ default: string }>(exports)
    .map(([path, target]) => {
      const source = target.default.replace("./dist/", "src/").replace(/\.js$/, ".ts");
      const lines = namesOf(join(packages, folder, source)).map((line) => `  ${line}`);
      return [`${name}${path.slice(1)}`, ...lines, ""].join("\n");
    })
    .join("\n");
}

// The public API, as a text to review. To change it on purpose: npx vitest run checks/exported-names --update
test.each(["postbox", "protobuf", "testkit"])("the exported names of %s", async (folder) => {
  await expect(surfaceOf(folder)).toMatchFileSnapshot(`exported-names/${folder}.txt`);
});

test("the reader knows every way to export", () => {
  const source = [
    'export { a, b as c, type D } from "./x.js";',
    "export type {\n  E,\n  F as G,\n} from './y.js';",
    "export const h = 1;",
    "export async function i() {}",
    "export abstract class J {}",
    "export interface K {}",
    "export type L = 1;",
    "// export const hidden = 1;",
    'export * from "./more.js";',
    "export default 1;",
  ].join("\n");
  const names = exportedNames(source, (specifier) => [`from ${specifier}`]);
  const values = ["J", "a", "c", "default", "from ./more.js", "h", "i"];
  expect(names).toEqual([...values, "type D", "type E", "type G", "type K", "type L"]);
});
