import { expect, it } from "vitest";
import { pageText } from "./snippets.js";

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
