import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { named, pageText, root, tableOf } from "./snippets.js";

const page = "docs/glossary.md";
const sources = join(root, "packages", "postbox", "src");
const code = readdirSync(sources, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
  .map((file) => `${file}\n${readFileSync(join(sources, file), "utf8")}`)
  .join("\n");

/** All rows of the page; its tables share one header. */
function rows(): string[][] {
  const sections = pageText(page).split("\n## ").slice(1);
  return sections.flatMap((section) =>
    section
      .split("\n")
      .filter((line) => line.startsWith("| ") && !line.startsWith("| word |") && !line.startsWith("| --- |"))
      .map((line) => line.split(" | ").map((cell) => cell.replace(/^\| | \|$/g, ""))),
  );
}

it("the glossary names each word once, and only what the code has", () => {
  expect(tableOf(page, "word").length).toBeGreaterThan(3);
  const words = rows().map(([word]) => word);
  expect(words.length).toBeGreaterThan(40);
  expect(new Set(words).size).toBe(words.length);
  for (const [word, , where] of rows()) {
    for (const name of named(where)) {
      // The code contains only the second part: it prefixes a table with its box, and declares a member within its
      // type.
      const part = /^(?:outbox|inbox)_(\w+)$/.exec(name)?.[1] ?? /^[A-Z]\w*\.(\w+)$/.exec(name)?.[1];
      const known = part ?? name.replace(/[(…<].*/, "");
      expect(known.length > 2 && code.includes(known), `${word}: ${name}`).toBe(true);
    }
  }
});
