import { describe, expect, it } from "vitest";
import { storedError } from "./stored-error.js";

describe("what is stored of an error", () => {
  it("is the text itself where it is short", () => {
    expect(storedError("x".repeat(2_048))).toBe("x".repeat(2_048));
  });

  it("is cut off where it is long, and never within a character", () => {
    expect(storedError("x".repeat(2_049))).toBe(`${"x".repeat(2_047)}…`);
    expect(storedError(`${"x".repeat(2_046)}😀😀`)).toBe(`${"x".repeat(2_046)}…`);
  });

  it.each([
    ["C0", 0x00, 0x08],
    ["C0 after the line feed", 0x0b, 0x1f],
    ["DEL and C1", 0x7f, 0x9f],
    ["bidirectional embeddings", 0x202a, 0x202e],
    ["bidirectional isolates", 0x2066, 0x2069],
  ])("has no control character that a terminal acts upon: %s", (_name, from, to) => {
    for (let code = from; code <= to; code++) {
      const control = String.fromCharCode(code);
      expect(storedError(`no ${control}31mstock\n\tat a`)).toBe("no 31mstock\n\tat a");
      // A control character within a key does not hide the secret.
      expect(storedError(`pass${control}word=sesame`)).toBe("password=***");
    }
  });

  it("has no secret, nor the beginning of one that it is cut off in", () => {
    const text = storedError(`${"x".repeat(2_020)} amqp://user:sesame@host/${"y".repeat(100)}`);
    expect(text).toContain("amqp://***@h");
    expect(text).not.toContain("ses");
  });
});
