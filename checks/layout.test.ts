import { execFileSync } from "node:child_process";
import { expect, it } from "vitest";
import { pageText, root } from "./snippets.js";

const pages = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"], {
  cwd: root,
  encoding: "utf8",
})
  .trim()
  .split("\n");

/** Returns the lines over 120 columns that could be wrapped: table rows, query plans and long URLs could not. */
function tooLong(text: string): string[] {
  let language: string | undefined;
  const found: string[] = [];
  for (const [at, line] of text.split("\n").entries()) {
    const fence = /^\s*```(\w*)/.exec(line);
    if (fence) language = language === undefined ? (fence[1] as string) : undefined;
    else if (line.length <= 120 || line.startsWith("|") || language === "plan" || /\S{80}/.test(line)) continue;
    else found.push(`${at + 1}: ${line}`);
  }
  return found;
}

it.each(pages)("%s keeps to 120 columns", (page) => {
  expect(tooLong(pageText(page))).toEqual([]);
});

it("a line that is too long is found, in prose and in code, but not in a table or a plan", () => {
  const long = "word ".repeat(30);
  expect(tooLong(`a\n${long}\n| ${long} |\n\`\`\`plan\n${long}\n\`\`\`\n\`\`\`ts\n${long}\n\`\`\``)).toEqual([
    `2: ${long}`,
    `8: ${long}`,
  ]);
});

it("each version of the CHANGELOG fits on a screen", () => {
  const versions = pageText("CHANGELOG.md")
    .split(/^(?=## )/m)
    .slice(1);
  expect(versions.length).toBeGreaterThan(0);
  for (const version of versions) {
    const lines = version.trimEnd().split("\n");
    expect(lines.length, lines[0]).toBeLessThanOrEqual(60);
  }
});
