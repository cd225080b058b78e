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

  it("has no secret, nor the beginning of one that it is cut off in", () => {
    const text = storedError(`${"x".repeat(2_020)} amqp://user:sesame@host/${"y".repeat(100)}`);
    expect(text).toContain("amqp://***@h");
    expect(text).not.toContain("ses");
  });
});
