import { describe, expect, it } from "vitest";
import { statementText } from "./statement-text.js";

describe("statementText", () => {
  it.each([
    ["SELECT 1", "SELECT ?"],
    ["SELECT * FROM t1 WHERE a = $1", "SELECT * FROM t1 WHERE a = $1"],
    ["UPDATE users\n  SET name = 'Ann''s'\n  WHERE id = 17", "UPDATE users SET name = ? WHERE id = ?"],
    ["SELECT 'C:\\', 'secret'", "SELECT ?, ?"],
    ["SELECT E'it\\'s', 'secret'", "SELECT ?, ?"],
    ["SELECT $$it's$$, $a$ $$ $a$, 'x'", "SELECT ?, ?, ?"],
    ["SELECT a -- don't\nFROM t WHERE b = 'secret'", "SELECT a FROM t WHERE b = ?"],
    ["SELECT /* it's */ 'secret'", "SELECT ?"],
    [`SELECT "it's" FROM t WHERE a = 'secret'`, `SELECT "it's" FROM t WHERE a = ?`],
    ["SELECT 'cut off secr", "SELECT ?"],
    ["SELECT $tag$cut off secr", "SELECT ?"],
    ["SELECT /* cut off", "SELECT"],
  ])("%s", (text, expected) => {
    expect(statementText(text)).toBe(expected);
  });

  it("shows the beginning of a long one", () => {
    expect(statementText(`SELECT ${"a".repeat(1000)}`)).toBe(`SELECT ${"a".repeat(193)}…`);
  });
});
