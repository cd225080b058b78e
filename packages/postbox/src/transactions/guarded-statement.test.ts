import { expect, it } from "vitest";
import { guardedStatement } from "./guarded-statement.js";

it("makes each text of a statement once: the one without a condition, and the one under a library's", () => {
  const made: string[] = [];
  const statement = guardedStatement((condition) => {
    made.push(condition);
    return `SELECT 1 WHERE ${condition}`;
  });
  for (let call = 0; call < 3; call++) {
    expect(statement.text).toBe("SELECT 1 WHERE TRUE");
    expect(statement.under("a = $1")).toBe("SELECT 1 WHERE a = $1");
  }
  expect(made).toEqual(["TRUE", "a = $1"]);
});
