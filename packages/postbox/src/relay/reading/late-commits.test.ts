import { testMessages } from "@postbox/testkit";
import { memoryStore } from "postbox/memory";
import { type LaneGap, laneCount, type Row, type Runtime } from "postbox/store";
import { expect, it } from "vitest";
import { runtimeWith } from "../../internal/runtime.js";
import { WriterRanges } from "../../stores/writer-ranges.js";
import { Window } from "../ordering/window.js";
import { Lanes } from "./lanes.js";
import { LateCommits } from "./late-commits.js";

const never = new AbortController().signal;
const open = (...numbers: number[]) => new WriterRanges(numbers.map((from) => ({ from, to: from + 1 })));

/** A box in memory with ten messages, and a reader that has read everything up to `cursor`. */
async function lookAt(
  isFull: () => boolean = () => false,
  openAt: (page: number) => number[] = () => [],
  { cursor = 10, runtime = {} }: { readonly cursor?: number; readonly runtime?: Partial<Runtime> } = {},
) {
  const store = memoryStore();
  await store.transaction((tx) => store.append(tx, "outbox", testMessages("m", 10)));
  const box = store.box("outbox");
  const window = new Window({ keepsOrder: true });
  const asked: { readonly gaps: readonly LaneGap[]; readonly found: number }[] = [];
  const lanes = new Lanes(1);
  lanes.add(Array.from({ length: laneCount }, (_, lane) => lane));
  for (const lane of lanes.all) lane.cursor = cursor;
  const late = new LateCommits({
    box: {
      ...box,
      async late(gaps, limit) {
        const { rows, more } = await box.late(gaps, limit);
        asked.push({ gaps, found: rows.length });
        return { rows, writers: open(...openAt(asked.length)), more };
      },
    } as typeof box,
    boxName: "outbox",
    window,
    batchSize: 1,
    maxBytes: () => 1_000_000,
    runtime: runtimeWith(runtime),
    telemetry: () => {},
    lanes,
    isFull,
    failed: () => 0,
    arrived: () => {},
  });
  const taken = () => window.take(100, Number.POSITIVE_INFINITY).map(({ message }: Row) => message.id);
  return { late, asked, taken };
}

it("accepts the rows of a writer when it has ended, from where it was first seen", async () => {
  const { late, taken } = await lookAt(
    () => false,
    (page) => (page === 1 ? [7] : []),
  );
  expect(await late.takeIn(open(7), 0, never)).toBe(0);
  await late.takeIn(open(7, 8), 6, never);
  expect(await late.takeIn(open(7), 10, never)).toBe(4);
  expect(taken()).toEqual(["m-6", "m-7", "m-8", "m-9"]);
  expect(await late.takeIn(open(), 10, never)).toBe(6);
  expect(await late.takeIn(open(), 10, never)).toBe(0);
});

it("accepts many rows page by page, lowest positions first", async () => {
  const { late, asked, taken } = await lookAt();
  await late.takeIn(open(7), 0, never);
  expect(await late.takeIn(open(), 10, never)).toBe(10);
  expect(asked.map(({ found }) => found)).toEqual([4, 4, 2]);
  expect(taken()).toEqual(testMessages("m", 10).map(({ id }) => id));
});

it("ends even if every page is slow, in pages of whole positions", async () => {
  let now = 0;
  const monotonic = () => (now += 300);
  const options = { cursor: 1_000_000, runtime: { monotonic } };
  const { late, asked } = await lookAt(
    () => false,
    () => [],
    options,
  );
  await late.takeIn(open(7), 10, never);
  expect(await late.takeIn(open(), 1_000_000, never)).toBe(0);
  const ends = asked.map(({ gaps }) => gaps[0]?.upTo ?? 0);
  expect(ends.every(Number.isInteger)).toBe(true);
  expect(ends.at(-1)).toBe(1_000_000);
});

it("waits between pages until there is room", async () => {
  let full = true;
  const { late, asked } = await lookAt(() => full);
  await late.takeIn(open(7), 0, never);
  const looking = late.takeIn(open(), 10, never);
  late.roomLeft();
  await new Promise(setImmediate);
  expect(asked).toEqual([]);
  full = false;
  late.roomLeft();
  expect(await looking).toBe(10);
});

it("inspects again after a failure", async () => {
  let fails = true;
  const { late } = await lookAt(() => {
    if (fails) throw new Error("no");
    return false;
  });
  await late.takeIn(open(7), 0, never);
  await expect(late.takeIn(open(), 10, never)).rejects.toThrow("no");
  fails = false;
  expect(await late.takeIn(open(), 10, never)).toBe(10);
});

it("ignores a writer that appended nothing, whether reported before or after a read shows it", async () => {
  const { late } = await lookAt();
  await late.takeIn(open(7), 0, never);
  late.appendedNothing(WriterRanges.one(7));
  late.appendedNothing(WriterRanges.one(8));
  expect(await late.takeIn(open(8, 9), 0, never)).toBe(0);
  expect(await late.takeIn(open(9), 0, never)).toBe(0);
  expect(await late.takeIn(open(), 0, never)).toBe(10);
});

it("goes back when another writer ends during the inspection", async () => {
  const { late, asked, taken } = await lookAt(
    () => false,
    (page) => (page === 1 ? [7] : []),
  );
  await late.takeIn(open(7), 0, never);
  await late.takeIn(open(7, 8), 2, never);
  // The read sees that 8 has ended, and the second page sees that 7 has.
  expect(await late.takeIn(open(7), 10, never)).toBe(10);
  expect(asked.map(({ gaps }) => gaps[0]?.after)).toEqual([2, 6, 0, 8]);
  expect(taken().slice(4)).toEqual(["m-0", "m-1", "m-6", "m-7", "m-8", "m-9"]);
});

it("handles a bulk load: hundreds of thousands of open transactions are one range", async () => {
  const { late, asked } = await lookAt();
  const bulk = { from: 1000, to: 501_000 };
  await late.takeIn(new WriterRanges([{ from: 7, to: 8 }, bulk]), 0, never);
  late.appendedNothing(WriterRanges.one(200_000));
  await late.takeIn(new WriterRanges([bulk]), 10, never);
  expect(asked.length).toBeGreaterThan(0);
  expect(await late.takeIn(new WriterRanges([{ from: 300_000, to: 501_000 }]), 10, never)).toBe(0);
  expect(await late.takeIn(open(), 10, never)).toBe(0);
});
