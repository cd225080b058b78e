import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { pageText } from "./snippets.js";

const errors = readFileSync(join(import.meta.dirname, "..", "packages", "postbox", "src", "errors.ts"), "utf8");
const codes = [...(/export type ErrorCode =([^;]*);/.exec(errors)?.[1] ?? "").matchAll(/"([a-z-]+)"/g)].map(
  ([, code]) => code,
);
const rows = pageText("docs/guides/troubleshooting.md")
  .split("\n")
  .flatMap((line) => /^\| `([a-z-]+)` \|/.exec(line)?.[1] ?? []);

it("the guide to troubleshooting has one line for each error code", () => {
  expect(codes).toContain("store-unavailable");
  expect(rows.toSorted()).toEqual(codes.toSorted());
});

it("each line says a cause and what to do", () => {
  const cells = pageText("docs/guides/troubleshooting.md")
    .split("\n")
    .filter((line) => /^\| `[a-z-]+` \|/.test(line))
    .map((line) => line.split("|").filter((cell) => cell.trim() !== ""));
  for (const row of cells) expect(row, row[0]).toHaveLength(3);
});
