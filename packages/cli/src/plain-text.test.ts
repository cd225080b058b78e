import { expect, it } from "vitest";
import { failureOf } from "./failure.js";
import { plain, plainJson } from "./plain-text.js";
import { table } from "./table.js";

const hostile = "a\u001b[2Jb\u009b31mc\u202ed\r\ne\u0007";
// biome-ignore lint/suspicious/noControlCharactersInRegex: they must be gone.
const acting = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028-\u202e]/;

it("shows characters that a terminal would act upon", () => {
  expect(plain(hostile)).toBe("a\\u001b[2Jb\\u009b31mc\\u202ed\\u000d\\u000ae\\u0007");
});

it("writes JSON that is safe on a terminal and has the same value", () => {
  for (const indent of [undefined, 2]) {
    const json = plainJson({ [hostile]: [hostile] }, indent);
    expect(acting.test(json)).toBe(false);
    expect(JSON.parse(json)).toEqual({ [hostile]: [hostile] });
  }
});

it("keeps each row of a table on one line", () => {
  const rows = table([{ title: "KEY", of: (key: string) => key }], [hostile, "b"]);
  expect([rows.length, rows.some((line) => acting.test(line) || line.includes("\n"))]).toEqual([3, false]);
});

it("removes secrets and line breaks from errors", () => {
  const { text } = failureOf(new Error(`cannot reach postgres://ann:canary@host/db\n    at x ${hostile}`));
  expect([text.includes("canary"), acting.test(text), text.includes("\n")]).toEqual([false, false, false]);
});
