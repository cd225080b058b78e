import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Plan, planOf } from "./plan.js";
import { shrink } from "./shrink.js";
import { simulate } from "./simulate.js";

async function traceOf(plan: Plan): Promise<string[]> {
  const lines: string[] = [];
  await simulate(plan, (line) => lines.push(line));
  return lines;
}

it("plays a seed the same way each time, and another one differently", async () => {
  for (const seed of [2, 3, 5]) {
    const lines = await traceOf(planOf(seed));
    expect(lines.length).toBeGreaterThan(20);
    expect(await traceOf(planOf(seed))).toEqual(lines);
    expect(await traceOf(JSON.parse(JSON.stringify(planOf(seed))))).toEqual(lines);
    expect(await traceOf(planOf(seed + 100))).not.toEqual(lines);
  }
});

describe("what once broke a rule does so no more", () => {
  const folder = join(import.meta.dirname, "../saved");
  it.each(readdirSync(folder))("%s", async (name) => {
    const { violations } = await simulate(JSON.parse(readFileSync(join(folder, name), "utf8")));
    expect(violations).toEqual([]);
  });
});

it("shrinks a plan to what it takes to break a rule", async () => {
  const plan = { ...planOf(7), relays: 1 };
  expect(plan.faults.length).toBeGreaterThan(2);
  const [, wanted] = plan.faults;
  const played: Plan[] = [];
  const small = await shrink(plan, "lost", 400, async (candidate) => {
    played.push(candidate);
    const breaks = candidate.faults.includes(wanted as Plan["faults"][0]) && candidate.transactions.length > 0;
    return { violations: breaks ? [{ rule: "lost" }] : [{ rule: "twice" }] };
  });
  expect(small.faults).toEqual([wanted]);
  expect(small.transactions).toHaveLength(1);
  expect(small.transactions[0]?.calls.flat()).toHaveLength(1);
  expect(small.relays).toBe(1);
  expect(played.length).toBeLessThan(400);
});
