import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { PostboxError } from "../errors.js";
import { type Codec, createCodecs } from "./codec.js";
import { jsonCodec } from "./json-codec.js";

function fault(data: unknown): PostboxError {
  try {
    jsonCodec.encode(data);
  } catch (error) {
    return error as PostboxError;
  }
  throw new Error("was encoded");
}

const cyclic: { self?: unknown } = {};
cyclic.self = cyclic;

class Money {
  readonly #cents = 5;
  readonly currency = "EUR";
  get cents(): number {
    return this.#cents;
  }
}

/** Arrays nested to this depth: `[[[…]]]`. */
function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < depth; level++) value = [value];
  return value;
}

describe("the JSON codec", () => {
  it("gives back whatever JSON can carry", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
        // JSON has one zero: only Object.is distinguishes -0 from 0.
        expect(JSON.stringify(jsonCodec.decode(jsonCodec.encode(value)))).toBe(JSON.stringify(value));
      }),
    );
  });

  it.each<[string, unknown, string]>([
    ["undefined in an object", { a: { b: undefined } }, "data.a.b"],
    ["undefined in an array", [1, undefined], "data[1]"],
    ["a hole in an array", Array(1), "data[0]"],
    ["NaN", { price: Number.NaN }, "data.price"],
    ["Infinity", [Number.POSITIVE_INFINITY], "data[0]"],
    ["a BigInt", { id: 1n }, "data.id"],
    ["a function", { f: () => 1 }, "data.f"],
    ["a symbol", { s: Symbol("s") }, "data.s"],
    ["a symbol as a key", { [Symbol("s")]: 1 }, "data"],
    ["an invalid date", { at: new Date(Number.NaN) }, "data.at"],
    ["a Map", { m: new Map() }, "data.m"],
    ["a Set", { m: new Set() }, "data.m"],
    ["a typed array", { b: new Uint8Array(2) }, "data.b"],
    ["a Buffer, in spite of its toJSON", { b: Buffer.from("x") }, "data.b"],
    ["an ArrayBuffer", { b: new ArrayBuffer(2) }, "data.b"],
    ["an Error", { e: new Error("x") }, "data.e"],
    ["a RegExp", { r: /x/ }, "data.r"],
    ["a promise that nobody awaited", { p: Promise.resolve(1) }, "data.p"],
    ["an instance of a class, whose getters and private fields get lost", { m: new Money() }, "data.m"],
    ["headers", { h: new Headers({ a: "b" }) }, "data.h"],
    ["search parameters", new URLSearchParams("a=b"), "data"],
    ["a number in a box", { n: Object(1) }, "data.n"],
    ["a BigInt in a box", { n: Object(1n) }, "data.n"],
    ["an array with other keys", { m: "ab".match(/b/) }, "data.m"],
    ["what toJSON returns when that is lossy", { t: { toJSON: () => ({ x: Number.NaN }) } }, "data.t.x"],
    ["nothing from toJSON", [{ toJSON: () => undefined }], "data[0]"],
    ["what is nested too deep", nested(1001), "data"],
    ["what is nested so deep that it overflows the stack", nested(100_000), "data"],
    ["a cycle", { a: [cyclic] }, "data.a[0].self"],
    ["a path that needs quotes", { "a b": [{ "": undefined }] }, 'data["a b"][0][""]'],
  ])("refuses %s", (_, data, path) => {
    const error = fault(data);
    expect(error.code).toBe("data-invalid");
    expect(error.path).toBe(path);
  });

  it("names what it refuses", () => {
    expect(fault({ m: new Money() }).message).toContain("data.m is a Money, which JSON does not keep");
    expect(fault({ m: new (class {})() }).message).toContain("is a thing without a name");
  });

  it("writes valid dates and what has toJSON, and the same object twice", () => {
    const shared = { x: 1 };
    const data = { at: new Date(0), url: new URL("https://example.test"), a: shared, b: shared };
    expect(jsonCodec.decode(jsonCodec.encode(data))).toEqual({
      at: "1970-01-01T00:00:00.000Z",
      url: "https://example.test/",
      a: { x: 1 },
      b: { x: 1 },
    });
  });

  it("takes plain objects of whatever realm, without a prototype too, and any depth within reason", () => {
    for (const data of [runInNewContext("({ a: [1] })"), Object.assign(Object.create(null), { a: [1] })]) {
      expect(jsonCodec.decode(jsonCodec.encode(data))).toEqual({ a: [1] });
    }
    expect(jsonCodec.decode(jsonCodec.encode(nested(1000)))).toEqual(nested(1000));
    expect(jsonCodec.decode(jsonCodec.encode({ toJSON: "a field" }))).toEqual({ toJSON: "a field" });
  });

  it("writes no data as no bytes", () => {
    expect(jsonCodec.encode(undefined)).toHaveLength(0);
    expect(jsonCodec.decode(new Uint8Array())).toBe(undefined);
  });
});

describe("codecs", () => {
  const codecs = createCodecs();

  it.each(["application/vnd.shop+json; charset=utf-8", "Application/JSON;charset=utf-8", "text/json"])(
    "takes %s for JSON",
    (contentType) => {
      const bytes = codecs.encode(contentType, { a: 1 });
      expect(Buffer.from(bytes).toString()).toBe('{"a":1}');
      expect(codecs.decode(contentType, bytes)).toEqual({ a: 1 });
    },
  );

  it("reads past a byte order mark", () => {
    expect(codecs.decode("application/json", Uint8Array.of(0xef, 0xbb, 0xbf, 0x31))).toBe(1);
  });

  it("leaves bytes untouched", () => {
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index);
    expect(codecs.encode("application/octet-stream", bytes)).toBe(bytes);
    expect(codecs.decode("application/octet-stream", bytes)).toBe(bytes);
  });

  it("says which content type it does not know, and for received data for good", () => {
    expect(() => codecs.encode("application/x", 1)).toThrow(expect.objectContaining({ code: "content-type-unknown" }));
    const received = expect.objectContaining({ name: "PermanentError", code: "content-type-unknown" });
    expect(() => codecs.decode("application/x", new Uint8Array())).toThrow(received);
  });

  it.each([
    ["text that is no JSON", Buffer.from("{")],
    ["bytes that are no UTF-8", Uint8Array.of(0x22, 0xff, 0x22)],
    ["a space", Buffer.from(" ")],
  ])("gives up on %s for good", (_, bytes) => {
    const error = expect.objectContaining({ name: "PermanentError", code: "data-invalid" });
    expect(() => codecs.decode("application/json", bytes)).toThrow(error);
  });

  it("prefers a codec that is passed in", () => {
    const own = { contentType: "application/json", encode: () => new Uint8Array([7]), decode: () => "own" };
    expect(createCodecs([own]).decode("application/json", new Uint8Array())).toBe("own");
  });

  it("prefer those of an event, also for the kinds of JSON that only others name", () => {
    const codec = (contentType: string, name: string): Codec => ({
      contentType,
      encode: () => Buffer.from(name),
      decode: (bytes) => `${name} of ${Buffer.from(bytes)}`,
    });
    const general = createCodecs([codec("application/x", "general"), codec("application/y+json", "general")]);
    const own = [codec("application/json", "own"), codec("Application/X", "own")];
    const both = general.preferring(own);
    for (const contentType of ["application/x", "application/json; charset=utf-8", "application/y+json", "text/json"]) {
      expect(Buffer.from(both.encode(contentType, 1)).toString()).toBe("own");
      expect(both.decode(contentType, Buffer.from("1"))).toBe("own of 1");
    }
    expect(both.decode("application/octet-stream", Uint8Array.of(1))).toEqual(Uint8Array.of(1));
    expect(Buffer.from(general.encode("application/x", 1)).toString()).toBe("general");
    expect(() => both.encode("application/z", 1)).toThrow("no codec for content type 'application/z'");
    expect(general.preferring(own)).toBe(both);
    expect(general.preferring([])).toBe(general);
  });
});
