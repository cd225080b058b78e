import { describe, expect, it } from "vitest";
import { cronTicks } from "./cron-ticks.js";
import { everyTicks, type Ticks } from "./ticks.js";

const at = (text: string) => Date.parse(text);
const shown = (ticks: readonly number[]) => ticks.map((tick) => new Date(tick).toISOString().slice(0, 16));

/** All ticks after a moment, found one by one. */
function walked(ticks: Ticks, after: number, upTo: number): number[] {
  const found: number[] = [];
  for (let tick = ticks.next(after); tick !== undefined && tick <= upTo; tick = ticks.next(tick)) found.push(tick);
  return found;
}

it("everyMs ticks at its multiples since 1970, whenever it is asked", () => {
  const ticks = everyTicks(1000);
  expect([ticks.next(0), ticks.next(1), ticks.next(999.5), ticks.next(1000)]).toEqual([1000, 1000, 1000, 2000]);
  expect(ticks.between(0, 3500.2, 10)).toEqual([1000, 2000, 3000]);
  expect(ticks.between(1000, 1999, 10)).toEqual([]);
  expect(ticks.between(0, 1e12, 2)).toEqual([1e12 - 1000, 1e12]);
});

describe("cron in Europe/Berlin", () => {
  const berlin = (expression: string) => cronTicks("test", expression, "Europe/Berlin");
  const spring = [at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z")] as const;
  const autumn = [at("2026-10-24T12:00:00Z"), at("2026-10-26T12:00:00Z")] as const;

  it("ticks by the wall clock, through the change of its offset", async () => {
    const ticks = await berlin("0 9 * * *");
    expect(shown(ticks.between(...spring, 10))).toEqual(["2026-03-29T07:00", "2026-03-30T07:00"]);
    expect(shown(ticks.between(...autumn, 10))).toEqual(["2026-10-25T08:00", "2026-10-26T08:00"]);
  });

  it("a time that the clock skips ticks once, at the end of the gap", async () => {
    const ticks = await berlin("30 2 * * *");
    expect(shown(ticks.between(...spring, 10))).toEqual(["2026-03-29T01:00", "2026-03-30T00:30"]);
  });

  it("a time that comes twice ticks once, the first time", async () => {
    const ticks = await berlin("30 2 * * *");
    expect(shown(ticks.between(...autumn, 10))).toEqual(["2026-10-25T00:30", "2026-10-26T01:30"]);
  });

  it("an interval ticks by elapsed time, also in the hour that comes twice", async () => {
    const ticks = await berlin("*/30 * * * *");
    for (const [after, upTo] of [spring, autumn]) {
      expect(ticks.between(after, upTo, 1000)).toEqual(
        Array.from({ length: 96 }, (_, index) => after + (index + 1) * 1_800_000),
      );
    }
  });

  it.each(["30 2 * * *", "*/30 * * * *", "15 2,3 * * *", "*/20 2 * * *", "0 0 1 * *", "*/7 * * * * *"])(
    "the last ticks of %s are those that are found one by one, wherever the clock changes",
    async (expression) => {
      const ticks = await berlin(expression);
      const perSecond = expression.split(" ").length === 6;
      for (const change of ["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"].map(at)) {
        const [from, to] = perSecond ? [change - 30_000, change + 30_000] : [change - 4e6, change + 9e6];
        const every = perSecond ? 4_999 : 1_211_003;
        for (let upTo = from; upTo < to; upTo += every) {
          const after = upTo - (perSecond ? 50_000 : (expression === "0 0 1 * *" ? 100 : 2) * 86_400_000);
          const all = walked(ticks, after, upTo);
          for (const most of [1, 3]) expect(ticks.between(after, upTo, most)).toEqual(all.slice(-most));
        }
      }
    },
  );
});

it("finds the latest tick without counting all of a long time", async () => {
  const ticks = await cronTicks("test", "* * * * * *", "UTC");
  expect(shown(ticks.between(0, at("2026-01-01T00:00:00.700Z"), 2))).toEqual(["2025-12-31T23:59", "2026-01-01T00:00"]);
});

it.each(["nonsense", "61 * * * *", "* * * *", "2026-12-01T00:00:00"])(
  "refuses %s as a cron expression",
  async (cron) => {
    await expect(cronTicks("nightly", cron, "UTC")).rejects.toMatchObject({
      code: "option-invalid",
      path: "nightly.cron",
      message: expect.stringMatching(/'nightly' cannot tick by cron .*; give minute, hour/),
    });
  },
);
