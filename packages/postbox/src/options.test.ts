import { expect, it } from "vitest";
import { callback, checkOptions, count, given, list, object, oneOf, positive, text } from "./options.js";

const rules = { pollIntervalMs: count, source: text, mode: oneOf("delete", "keep") };

it("rejects an unknown option and suggests the nearest known one", () => {
  expect(() => checkOptions("createRelay", { pollInterval: 1 }, rules)).toThrow(
    "[option-unknown] createRelay: unknown option 'pollInterval'; did you mean 'pollIntervalMs'?",
  );
  expect(() => checkOptions("createRelay", { zzz: 1 }, rules)).toThrow("known are pollIntervalMs, source, mode");
  expect(() => checkOptions("createRelay", { constructor: 1 }, rules)).toThrow("unknown option 'constructor'");
});

it("rejects an invalid value and describes valid ones", () => {
  expect(() => checkOptions("x", { pollIntervalMs: 0.5 }, rules)).toThrow(
    "x: option 'pollIntervalMs' must be a whole number of at least 1; got 0.5",
  );
  expect(() => checkOptions("x", { mode: "drop" }, rules)).toThrow(`must be "delete" or "keep"; got "drop"`);
  expect(() => checkOptions("x", {}, rules, ["source"])).toThrow("option 'source' is missing; give a non-empty string");
  expect(() => checkOptions("x", null as never, rules)).toThrow("options must be an object");
});

it("repeats no password of a URL in the wrong place", () => {
  expect(() => checkOptions("x", { mode: "postgres://u:secret@h/d" }, rules)).toThrow('got "postgres://***@h/d"');
  expect(() => checkOptions("x", "postgres://u:secret@h/d" as never, rules)).toThrow('got "postgres://***@h/d"');
});

it("treats undefined as the default", () => {
  expect(() => checkOptions("x", { pollIntervalMs: undefined, source: "/a" }, rules, ["source"])).not.toThrow();
});

it.each([
  ["positive", positive, [0.5, 1e9], [0, -1, Number.NaN, Number.POSITIVE_INFINITY, "1", null]],
  ["count", count, [1, 1000], [0, 0.5, -1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, "1"]],
  ["text", text, ["a"], ["", 1, null, ["a"]]],
  ["callback", callback, [() => {}], [{}, null, "f"]],
  ["object", object, [{}], [[], null, "o", () => {}]],
  ["list", list, [[]], [{}, null, "l"]],
  ["oneOf", oneOf("a", "b"), ["a", "b"], ["c", "", undefined, 1]],
])("%s takes what it says and nothing else", (_, rule, good, bad) => {
  expect(good.filter((value) => !rule.test(value))).toEqual([]);
  expect(bad.filter((value) => rule.test(value))).toEqual([]);
});

it("prefers given values, and ignores undefined ones", () => {
  expect(given({ a: 1, b: 2, c: undefined }, { b: 3, a: undefined })).toEqual({ a: 1, b: 3 });
  expect(given(undefined, { a: 1 })).toEqual({ a: 1 });
  expect(given({ a: 1 })).toEqual({ a: 1 });
});
