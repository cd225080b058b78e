import { describe, expect, it } from "vitest";
import { counted, duration, size } from "./figures.js";

describe("figures", () => {
  it.each([
    [-5, "0 ms"],
    [0.5, "0 ms"],
    [999.9, "999 ms"],
    [1500, "1 s"],
    [60_000, "1 min"],
    [200_000, "3 min 20 s"],
    [3_600_000 + 59_999, "1 h"],
    [26 * 3_600_000, "1 d 2 h"],
  ])("a duration of %d ms", (ms, text) => {
    expect(duration(ms)).toBe(text);
  });

  it.each([
    [0, "0 bytes"],
    [1536, "1.5 KiB"],
    [10 * 1024 ** 3, "10.0 GiB"],
    [5000 * 1024 ** 5, "5000.0 PiB"],
  ])("a size of %d bytes", (bytes, text) => {
    expect(size(bytes)).toBe(text);
  });

  it("a count", () => {
    expect([counted(1, "lane"), counted(0, "lane"), counted(12_345, "row")]).toEqual([
      "1 lane",
      "0 lanes",
      "12,345 rows",
    ]);
  });
});
