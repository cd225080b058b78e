import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";

const root = join(import.meta.dirname, "..");
it.each([
  ["transactions", "02-transactions"],
  ["rabbitmq", "03-rabbitmq"],
])("the snippets of the guide to %s stand in programs that are run", (name, example) => {
  const guide = readFileSync(join(root, "docs", "guides", `${name}.md`), "utf8");
  const programs = join(root, "examples", example, "src");
  const snippets = [...guide.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code as string);
  const code = readdirSync(programs).map((file) => readFileSync(join(programs, file), "utf8"));
  expect(snippets.length).toBeGreaterThan(2);
  for (const snippet of snippets) {
    expect(
      code.some((program) => program.includes(snippet)),
      snippet,
    ).toBe(true);
  }
});

it("the table of the guide to transactions names every library that has an export", () => {
  const guide = readFileSync(join(root, "docs", "guides", "transactions.md"), "utf8");
  const { exports } = JSON.parse(readFileSync(join(root, "packages", "postbox", "package.json"), "utf8"));
  const paths = Object.entries<{ default: string }>(exports)
    .filter(([, target]) => target.default.includes("/transactions/"))
    .map(([path]) => `postbox${path.slice(1)}`);
  expect(paths.length).toBeGreaterThan(5);
  for (const path of paths) expect(guide).toContain(`| \`${path}\` |`);
});
