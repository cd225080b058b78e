import { testMessage } from "@postbox/testkit";
import { expect, it } from "vitest";
import { keyLocks } from "./key-lock.js";

const locks = (schema: string, box: string, ...keys: (string | undefined)[]) =>
  keyLocks(
    schema,
    box,
    keys.map((key, index) => testMessage(`m${index}`, key === undefined ? {} : { key })),
  );

it("has one number for each key, ascending, and none for messages without", () => {
  const keys = Array.from({ length: 100 }, (_, index) => `key-${index}`);
  const numbers = locks("postbox", "outbox", ...keys, undefined, ...keys.reverse()).map(BigInt);
  expect(numbers).toHaveLength(100);
  expect(numbers.every((number, index) => index === 0 || number > (numbers[index - 1] as bigint))).toBe(true);
  expect(numbers.every((number) => number === BigInt.asIntN(64, number))).toBe(true);
  expect(numbers.some((number) => number < 0n)).toBe(true);
});

it("never changes, since processes of two versions must take the same", () => {
  expect(locks("postbox", "outbox", "order-1")).toEqual(["-1021060553924616554"]);
});

it("differs by schema and box", () => {
  const all = [locks("a", "outbox", "k"), locks("b", "outbox", "k"), locks("a", "inbox", "k")].flat();
  expect(new Set(all).size).toBe(3);
});
