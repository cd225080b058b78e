import { execFileSync } from "node:child_process";
import { expect, it } from "vitest";
import { pageText, root } from "./snippets.js";

const limit = 120;

/** Files whose lines are not checked, each with the reason. */
const exempt: readonly (readonly [path: RegExp, reason: string])[] = [
  [/_(pb|postbox)\.ts$/, "generated from .proto files"],
  [/^checks\/compile-errors\//, "an expected error belongs to one line, so its statement is not wrapped"],
  [/^packages\/postbox\/src\/router\/fits\.ts$/, "a template literal type cannot be split with +"],
  [/^packages\/postbox\/src\/event\/standard-schema\.ts$/, "the compiler shows the literal types of these texts"],
];

/** Statements and parts of them: their layout follows the SQL, and snapshots pin it. */
const sql = new RegExp(
  String.raw`^\s*--|::\w|:=|\b(coalesce|jsonb?_\w+)\(|` +
    String.raw`\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|JOIN|VALUES|CREATE|ALTER|SET|ARRAY|CASE|WHEN|` +
    String.raw`RAISE|PERFORM|ELSIF|INTO|RETURNS?|EXISTS|NULL|AND|AS)\b`,
  "m",
);
const comment = /^\s*(\/\/|\/?\*)/;
/** An address, a hash or a regular expression, which has no place to break. */
const unbreakable = /\S{80}/;

/** Numbers the lines over 120 columns. */
function longLines(text: string): (readonly [number: number, line: string])[] {
  return text.split("\n").flatMap((line, at) => {
    return line.length <= limit || unbreakable.test(line) ? [] : [[at + 1, line] as const];
  });
}

/** Returns the long lines of a page that could be wrapped: rows of tables and plans of queries could not. */
function tooLongIn(page: string): string[] {
  const plans = new Set<number>();
  let language: string | undefined;
  for (const [at, line] of page.split("\n").entries()) {
    const fence = /^\s*```(\w*)/.exec(line);
    if (fence) language = language === undefined ? (fence[1] as string) : undefined;
    else if (language === "plan") plans.add(at + 1);
  }
  return longLines(page)
    .filter(([number, line]) => !line.startsWith("|") && !plans.has(number))
    .map(([number, line]) => `${number}: ${line}`);
}

/** Returns the long lines of a module that could be wrapped: statements could not, nor what stands within one. */
function tooLongInModule(text: string): string[] {
  const inSql = new Set<number>();
  let template: string | undefined;
  for (const [at, line] of text.split("\n").entries()) {
    if (template === undefined && comment.test(line)) continue;
    let isSql = sql.test(line);
    for (const [nth, part] of line.split(/(?<!\\)`/).entries()) {
      if (nth > 0) template = template === undefined ? "" : undefined;
      if (template === undefined) continue;
      template += `${part}\n`;
      isSql ||= sql.test(template);
    }
    if (isSql) inSql.add(at + 1);
  }
  return longLines(text)
    .filter(([number]) => !inSql.has(number))
    .map(([number, line]) => `${number}: ${line}`);
}

it("no line is longer than 120 columns, except tables, SQL, query plans and addresses", () => {
  const patterns = ["*.ts", "*.mts", "*.cts", "*.mjs", "*.md"];
  const listed = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", ...patterns], {
    cwd: root,
    encoding: "utf8",
  });
  const files = listed
    .trim()
    .split("\n")
    .filter((file) => !exempt.some(([path]) => path.test(file)));
  expect(files.length).toBeGreaterThan(500);
  const found = files.flatMap((file) =>
    (file.endsWith(".md") ? tooLongIn : tooLongInModule)(pageText(file)).map((line) => `${file}:${line}`),
  );
  expect(found).toEqual([]);
});

it("a long line of a page is found in prose and in code, but not in a table or a plan", () => {
  const long = "word ".repeat(30);
  const page = `a\n${long}\n| ${long} |\n\`\`\`plan\n${long}\n\`\`\`\n\`\`\`ts\n${long}\n\`\`\``;
  expect(tooLongIn(page)).toEqual([`2: ${long}`, `8: ${long}`]);
});

it("a long line of a module is found in comments, code and texts, but not in a statement or an address", () => {
  const long = "word ".repeat(30);
  const statement = `const text = \`UPDATE box\n  ${long}\`;`;
  const lines = [`// ${long}`, ` * SELECT ${long}`, `f("${long}")`, `\`${long}\``, statement, `f("SELECT ${long}")`];
  expect(tooLongInModule([...lines, long, `"https://${"a".repeat(120)}"`].join("\n"))).toEqual([
    `1: // ${long}`,
    `2:  * SELECT ${long}`,
    `3: f("${long}")`,
    `4: \`${long}\``,
    `8: ${long}`,
  ]);
});
