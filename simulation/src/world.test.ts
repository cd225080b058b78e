import { expect, it } from "vitest";
import { createChance } from "./chance.js";
import { SimulatedProcess } from "./process.js";
import { World } from "./world.js";

const worldOf = (seed: number) => new World(createChance(seed));

it("lets time jump from one task to the next, and lets everything go on in between", async () => {
  const world = worldOf(1);
  const seen: string[] = [];
  world.at(3_600_000, () => seen.push(`later at ${world.now}`));
  world.at(10, async () => {
    for (let turn = 0; turn < 50; turn++) await Promise.resolve();
    seen.push(`first at ${world.now}`);
  });
  world.at(10.5, () => seen.push(`second at ${world.now}`));
  world.at(20, () => seen.push("never"))();
  expect(await world.run(() => seen.length === 3, 1_000, 4_000_000)).toBe(true);
  expect(seen).toEqual(["first at 10", "second at 10.5", "later at 3600000"]);
  expect(world.pending).toBe(0);
});

it("leaves it to the seed which of two at one moment comes first", async () => {
  const orderOf = async (seed: number) => {
    const world = worldOf(seed);
    let order = "";
    for (const name of "abcdef") world.at(5, () => (order += name));
    await world.run(() => order.length === 6, 10, 100);
    return order;
  };
  expect(await orderOf(1)).toBe(await orderOf(1));
  expect(new Set(await Promise.all(Array.from({ length: 20 }, (_, seed) => orderOf(seed)))).size).toBeGreaterThan(10);
});

it("says when its time is up", async () => {
  const world = worldOf(1);
  expect(await world.run(() => false, 10, 500)).toBe(false);
  expect(world.now).toBe(500);
});

it("stops what runs in a process when it dies, and delays it while it is paused", async () => {
  const world = worldOf(1);
  const seen: string[] = [];
  const process = new SimulatedProcess(world, "p", createChance(2), () => {});
  process.runtime.schedule(() => seen.push(`paused until ${world.now}`), 10);
  process.runtime.schedule(() => seen.push("after its death"), 300);
  process.pause(200);
  world.at(250, () => process.die());
  await world.run(() => false, 100, 1_000);
  expect(seen).toEqual(["paused until 200"]);
});

it("kills a process at a failpoint", async () => {
  const world = worldOf(1);
  const reached: string[] = [];
  const deathbed = { failpoint: "relay.sent", hit: 2 } as const;
  const process = new SimulatedProcess(world, "p", createChance(2), (name) => reached.push(name), deathbed);
  expect(process.runtime.failpoint?.("relay.sent")).toBeUndefined();
  expect(process.runtime.failpoint?.("relay.read")).toBeUndefined();
  expect(process.alive).toBe(true);
  expect(process.runtime.failpoint?.("relay.sent")).toBeInstanceOf(Promise);
  expect(process.alive).toBe(false);
  expect(reached).toEqual(["relay.sent", "relay.read", "relay.sent"]);
});
