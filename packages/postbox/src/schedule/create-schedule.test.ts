import { type ManualRuntime, manualRuntime, telemetryLog } from "@postbox/testkit";
import { createOutbox, defineEvent } from "postbox";
import { type MemoryTransaction, memoryDatabase, memoryStore } from "postbox/memory";
import { createSchedule, type ScheduleEntry } from "postbox/schedule";
import type { Failpoint } from "postbox/store";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const ReportDue = defineEvent({ type: "shop.reports.v1.ReportDue", schema: z.object({ at: z.string() }) });
const message = (tick: Date) => ReportDue.message({ at: tick.toISOString() });

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

/** A database, and processes that run a schedule on it, all on one clock. */
function world(options: { readonly now?: number } = {}) {
  const runtime = manualRuntime(options);
  const database = memoryDatabase({ runtime });
  const log = telemetryLog();
  const process = (entries: Readonly<Record<string, ScheduleEntry>>, own: Partial<ManualRuntime> = {}) => {
    const store = memoryStore({ database });
    const outbox = createOutbox(store, { source: "/reports", runtime: { ...runtime, ...own }, telemetry: () => {} });
    return {
      store,
      outbox,
      ...createSchedule(outbox, entries, { runtime: { ...runtime, ...own }, telemetry: log.telemetry }),
    };
  };
  const messages = () => database.contents("outbox").pending;
  return {
    runtime,
    database,
    log,
    process,
    messages,
    /** The tick times of the outbox's messages, taken from their data. */
    ticks: () => messages().map(({ data }) => JSON.parse(new TextDecoder().decode(data as Uint8Array)).at.slice(0, 16)),
  };
}

it("publishes at every tick, from the start on, with an id of its own", async () => {
  const { runtime, log, process, messages, ticks } = world();
  const schedule = process({ hourly: { everyMs: hour, message } });
  await schedule.start();
  await runtime.advance(2.5 * hour);
  expect(ticks()).toEqual(["2026-01-01T01:00", "2026-01-01T02:00"]);
  const ids = messages().map(({ id }) => id);
  expect(ids[0]).toMatch(/^hourly\/2026-01-01T01:00:00\.000Z\/[0-9a-f]{32}$/);
  expect(ids[1]).toBe(ids[0]?.replace("T01", "T02"));
  expect(messages()[0]).toMatchObject({ type: ReportDue.type, source: "/reports" });
  expect(log.events).toEqual([
    { name: "schedule.ticked", schedule: "hourly", tick: "2026-01-01T01:00:00.000Z", lateMs: 0, ids: [ids[0]] },
    { name: "schedule.ticked", schedule: "hourly", tick: "2026-01-01T02:00:00.000Z", lateMs: 0, ids: [ids[1]] },
  ]);
  await schedule.stop();
  await runtime.advance(day);
  expect(messages()).toHaveLength(2);
});

it("accepts a ready-made draft with its options, except for its id", async () => {
  const { runtime, process, messages } = world();
  const draft = ReportDue.message({ at: "any" }, { id: "mine", key: "k", headers: { h: "1" } });
  const schedule = process({ hourly: { everyMs: hour, message: draft } });
  await schedule.start();
  await runtime.advance(2 * hour);
  await schedule.stop();
  expect(messages()).toMatchObject([
    { key: "k", headers: { h: "1" } },
    { key: "k", headers: { h: "1" } },
  ]);
  expect(new Set(messages().map(({ id }) => id)).size).toBe(2);
});

it("ticks by cron in its time zone, through a change of the clock", async () => {
  const { runtime, process, ticks } = world({ now: Date.UTC(2026, 2, 29) });
  await using schedule = process({
    berlin: { cron: "30 2 * * *", timeZone: "Europe/Berlin", message },
    utc: { cron: "45 2 * * *", message },
  });
  await schedule.start();
  await runtime.advance(1.25 * day);
  expect(ticks()).toEqual(["2026-03-29T01:00", "2026-03-29T02:45", "2026-03-30T00:30", "2026-03-30T02:45"]);
});

it("publishes each tick once, however many processes run", async () => {
  const { runtime, log, process, messages } = world();
  const entry = { everyMs: 10 * minute, message };
  const all = Array.from({ length: 5 }, () => process({ often: entry }));
  await Promise.all(all.map((schedule) => schedule.start()));
  await runtime.advance(day);
  await Promise.all(all.map((schedule) => schedule.stop()));
  expect(messages()).toHaveLength(144);
  expect(new Set(messages().map(({ id }) => id)).size).toBe(144);
  expect(log.of("schedule.ticked")).toHaveLength(144);
});

it("uses the database's clock, not the host's", async () => {
  const { runtime, database, process, ticks } = world();
  const schedule = process({ hourly: { everyMs: hour, message } }, { now: () => Date.UTC(1999, 0, 1) });
  await schedule.start();
  await runtime.advance(10 * minute);
  database.advance(49.5 * minute);
  expect(ticks()).toEqual([]);
  // The schedule reads the database's clock at least once a minute.
  await runtime.advance(minute);
  expect(ticks()).toEqual(["2026-01-01T01:00"]);
  await schedule.stop();
});

describe("missed ticks", () => {
  /** Runs the schedule for an hour, pauses for `breakMs`, and runs it again. */
  async function after(breakMs: number, entry: ScheduleEntry) {
    const { runtime, log, process, ticks } = world();
    const first = process({ hourly: entry });
    await first.start();
    await runtime.advance(hour);
    await first.stop();
    await runtime.advance(breakMs);
    const second = process({ hourly: entry });
    await second.start();
    await runtime.advance(0);
    const missed = ticks().slice(1);
    await runtime.advance(hour);
    await second.stop();
    return { missed, later: ticks().slice(1 + missed.length), log };
  }
  const ticked = (...hours: number[]) => hours.map((each) => `2026-01-01T${String(each).padStart(2, "0")}:00`);

  it("one: publishes the latest", async () => {
    const { missed, later } = await after(5.5 * hour, { everyMs: hour, message });
    expect([missed, later]).toEqual([ticked(6), ticked(7)]);
  });

  it("one: publishes nothing if none was missed", async () => {
    const { missed, later } = await after(0.5 * hour, { everyMs: hour, message });
    expect([missed, later]).toEqual([[], ticked(2)]);
  });

  it("all: publishes each, in one transaction", async () => {
    const { missed, later, log } = await after(5.5 * hour, { everyMs: hour, message, missed: "all" });
    expect([missed, later]).toEqual([ticked(2, 3, 4, 5, 6), ticked(7)]);
    expect(log.of("schedule.ticked").map(({ ids }) => ids.length)).toEqual([1, 5, 1]);
  });

  it("all: publishes the latest maxMissed", async () => {
    const entry = { cron: "0 * * * *", message, missed: "all", maxMissed: 2 } as const;
    const { missed, later } = await after(5.5 * hour, entry);
    expect([missed, later]).toEqual([ticked(5, 6), ticked(7)]);
  });

  it("skip: publishes nothing, and reports it", async () => {
    const { missed, later, log } = await after(5.5 * hour, { everyMs: hour, message, missed: "skip" });
    expect([missed, later]).toEqual([[], ticked(7)]);
    const skipped = {
      name: "schedule.skipped",
      schedule: "hourly",
      tick: "2026-01-01T06:00:00.000Z",
      lateMs: hour / 2,
    };
    expect(log.of("schedule.skipped")).toEqual([skipped]);
  });

  it("skip: a minute is not too late", async () => {
    const { missed } = await after(hour + minute, { everyMs: hour, message, missed: "skip" });
    expect(missed).toEqual(ticked(2));
  });
});

it("continues from the last tick with another expression, and publishes no time twice while both run", async () => {
  const { runtime, process, messages, ticks } = world();
  const before = process({ report: { cron: "0 * * * *", message } });
  const after = process({ report: { cron: "0,30 * * * *", message } });
  await before.start();
  await runtime.advance(hour);
  await after.start();
  await runtime.advance(hour);
  await before.stop();
  await runtime.advance(hour);
  await after.stop();
  expect(ticks()).toEqual(["01:00", "01:30", "02:00", "02:30", "03:00"].map((time) => `2026-01-01T${time}`));
  expect(new Set(messages().map(({ id }) => id.split("/")[2])).size).toBe(1);
});

it("names the same tick of another database differently, as a consumer of both must see two messages", async () => {
  const ids: string[] = [];
  for (const seed of [1, 2]) {
    const runtime = manualRuntime({ seed });
    const store = memoryStore({ runtime });
    const schedule = createSchedule(
      createOutbox(store, { source: "/s" }),
      { h: { everyMs: hour, message } },
      { runtime },
    );
    await schedule.start();
    await runtime.advance(hour);
    await schedule.stop();
    ids.push(...store.contents("outbox").pending.map(({ id }) => id));
  }
  expect(ids).toHaveLength(2);
  expect(ids[0]).not.toBe(ids[1]);
});

describe("failures", () => {
  it("after the claim and the append, before COMMIT: both roll back, and the tick is published later", async () => {
    const { runtime, log, process, ticks } = world();
    let crashes = 2;
    const failpoint = (name: Failpoint) => {
      if (name === "outbox.appended" && crashes-- > 0) throw new Error("crash");
    };
    const schedule = process({ hourly: { everyMs: hour, message } }, { failpoint });
    await schedule.start();
    await runtime.advance(hour + minute);
    await schedule.stop();
    expect(ticks()).toEqual(["2026-01-01T01:00"]);
    expect(log.events.map(({ name }) => name)).toEqual(["schedule.failed", "schedule.failed", "schedule.ticked"]);
    expect(log.of("schedule.failed")[0]).toMatchObject({ schedule: "hourly", error: { code: "unknown" } });
  });

  it("after COMMIT, before it is known: the database knows, and nothing is published twice", async () => {
    const { runtime, log, process, ticks } = world();
    const { store, outbox } = process({});
    const lossy = {
      ...outbox,
      store: {
        ...store,
        async transaction<R>(work: (tx: MemoryTransaction) => Promise<R>): Promise<R> {
          const before = ticks().length;
          const result = await store.transaction(work);
          if (ticks().length > before) throw new Error("the connection was lost");
          return result;
        },
      },
    };
    const schedule = createSchedule(
      lossy,
      { hourly: { everyMs: hour, message } },
      { runtime, telemetry: log.telemetry },
    );
    await schedule.start();
    await runtime.advance(2 * hour + minute);
    await schedule.stop();
    expect(ticks()).toEqual(["2026-01-01T01:00", "2026-01-01T02:00"]);
    expect(log.of("schedule.failed")).toHaveLength(2);
  });

  it("a function that throws delays its own tick, and no other entry", async () => {
    const { runtime, log, process, ticks } = world();
    let broken = true;
    const failing = (tick: Date) => {
      if (broken) throw new Error("no paper");
      return message(tick);
    };
    const schedule = process({ good: { everyMs: hour, message }, bad: { cron: "5 * * * *", message: failing } });
    await schedule.start();
    await runtime.advance(2 * hour);
    expect(ticks()).toEqual(["2026-01-01T01:00", "2026-01-01T02:00"]);
    expect(log.of("schedule.failed")[0]).toMatchObject({ schedule: "bad", error: { message: "[unknown] no paper" } });
    broken = false;
    await runtime.advance(minute);
    expect(ticks()).toContain("2026-01-01T01:05");
    await schedule.stop();
  });

  it("a function that answers a promise is reported, and the rejection of that promise ends nothing", async () => {
    const { runtime, log, process, ticks } = world();
    const late = () => Promise.reject(new Error("no paper")) as never;
    const schedule = process({ good: { everyMs: hour, message }, bad: { cron: "5 * * * *", message: late } });
    await schedule.start();
    await runtime.advance(2 * hour);
    await schedule.stop();
    expect(ticks()).toEqual(["2026-01-01T01:00", "2026-01-01T02:00"]);
    expect(log.of("schedule.failed")[0]).toMatchObject({ schedule: "bad", error: { code: "event-invalid" } });
  });

  it("a transaction that hangs times out, and does not block stop()", async () => {
    const { runtime, log, process } = world();
    const { store, outbox } = process({});
    const hanging = { ...outbox, store: { ...store, transaction: () => new Promise<never>(() => {}) } };
    const schedule = createSchedule(
      hanging,
      { hourly: { everyMs: hour, message } },
      { runtime, telemetry: log.telemetry },
    );
    const started = schedule.start();
    await runtime.advance(0);
    const stopped = schedule.stop();
    await runtime.advance(10_000);
    await Promise.all([started, stopped]);
    expect(log.of("schedule.failed")).toMatchObject([{ error: { code: "store-timeout" } }]);
  });

  it("an invalid cron expression rejects the start, and is reported", async () => {
    const { log, process } = world();
    const schedule = process({ good: { everyMs: hour, message }, bad: { cron: "nonsense", message } });
    await expect(schedule.start()).rejects.toMatchObject({ code: "option-invalid", path: "bad.cron" });
    await expect(schedule.stop()).rejects.toMatchObject({ code: "option-invalid" });
    expect(log.events).toMatchObject([{ name: "schedule.failed", retryInMs: Number.POSITIVE_INFINITY }]);
  });
});

it("leaves no timer behind when it is stopped, and can be started again", async () => {
  const { runtime, process, ticks } = world();
  const timers = new Set<object>();
  const schedule = process(
    { hourly: { everyMs: hour, message }, cron: { cron: "0 0 * * *", message } },
    {
      schedule(task, ms) {
        const timer = {};
        timers.add(timer);
        const cancel = runtime.schedule(() => {
          timers.delete(timer);
          task();
        }, ms);
        return () => {
          timers.delete(timer);
          cancel();
        };
      },
    },
  );
  await schedule.start();
  expect(() => schedule.start()).toThrow("already-started");
  await runtime.advance(hour);
  expect(timers.size).toBe(2);
  await schedule.stop();
  expect(timers.size).toBe(0);
  await schedule.start();
  await runtime.advance(hour);
  await schedule.stop();
  expect(ticks()).toHaveLength(2);
});

it.each<[string, Record<string, unknown>, string]>([
  ["both", { cron: "* * * * *", everyMs: 1, message }, "needs one of cron and everyMs"],
  ["neither", { message }, "needs one of cron and everyMs"],
  ["a fraction", { everyMs: 1.5, message }, "a whole number"],
  ["no message", { everyMs: 1 }, "'message' is missing"],
  ["a wrong time zone", { cron: "* * * * *", timeZone: "Mars/North", message }, "the name of a time zone"],
  ["a time zone without cron", { everyMs: 1, timeZone: "UTC", message }, "has no effect without cron"],
  ["a bound without all", { everyMs: 1, maxMissed: 2, message }, 'has no effect without missed: "all"'],
  ["a wrong policy", { everyMs: 1, missed: "none", message }, '"one" or "skip" or "all"'],
  ["a wrong option", { everyMs: 1, messages: message }, "did you mean 'message'"],
])("refuses an entry with %s", (_, entry, text) => {
  const outbox = createOutbox(memoryStore(), { source: "/reports" });
  expect(() => createSchedule(outbox, { entry: entry as unknown as ScheduleEntry })).toThrow(text);
});

it("rejects invalid names, and values that are not an outbox", () => {
  const outbox = createOutbox(memoryStore(), { source: "/reports" });
  expect(() => createSchedule(outbox, { "a b": { everyMs: 1, message } })).toThrow("an entry's name must be");
  expect(() => createSchedule(memoryStore() as never, {})).toThrow("give what createOutbox(store) returned");
});
