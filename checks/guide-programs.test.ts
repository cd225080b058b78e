import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";

const root = join(import.meta.dirname, "..");
it.each([
  ["transactions", "02-transactions"],
  ["rabbitmq", "03-rabbitmq"],
  ["protobuf", "04-books"],
  ["kafka", "06-kafka"],
])("the snippets of the guide to %s stand in programs that are run", (name, example) => {
  const guide = readFileSync(join(root, "docs", "guides", `${name}.md`), "utf8");
  const programs = join(root, "examples", example, "src");
  const snippets = [...guide.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code as string);
  const files = readdirSync(programs).filter((file) => file.endsWith(".ts"));
  const code = files.map((file) => readFileSync(join(programs, file), "utf8"));
  expect(snippets.length).toBeGreaterThan(2);
  for (const snippet of snippets) {
    expect(
      code.some((program) => program.includes(snippet)),
      snippet,
    ).toBe(true);
  }
});

it("what else the guide to protobuf shows stands in files that are used", () => {
  const guide = readFileSync(join(root, "docs", "guides", "protobuf.md"), "utf8");
  const shown = (language: string) =>
    [...guide.matchAll(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "gs"))].map(([, text]) => text as string);
  const file = (...path: string[]) => readFileSync(join(root, ...path), "utf8");
  const example = ["examples", "04-books"];
  expect(shown("yaml")).toEqual([file(...example, "buf.yaml"), file(...example, "buf.gen.yaml")]);
  const [message] = shown("proto");
  expect(file(...example, "proto", "example", "books", "v1", "books.proto")).toContain(message);
  // Each error is one line, which the guide wraps.
  const wrapped = guide.split("## Errors of the generator")[1]?.match(/^bad\/.*$(\n {2}.*$)*/gm) ?? [];
  const told = wrapped.map((lines) => lines.replaceAll(/\n {2}/g, " "));
  const errors = file("packages", "protobuf", "fixtures", "bad", "errors.txt").split("\n");
  expect(told.length).toBeGreaterThan(3);
  for (const line of told) expect(errors).toContain(line);
  const [sentence] = guide.match(/^.* takes .* already, .*$/m) ?? [];
  expect(file("checks", "compile-errors", "wrong-use.ts")).toContain(`// error: ${sentence}\n`);
  const options = file("packages", "protobuf", "proto", "postbox", "v1", "options.proto");
  const numbers = [...options.matchAll(/(\w+) = (\d+);/g)].map(
    ([, name, number]) => `| \`(postbox.v1.${name})\` | ${number} |`,
  );
  expect(numbers).toHaveLength(4);
  for (const row of numbers) expect(guide).toContain(row);
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
