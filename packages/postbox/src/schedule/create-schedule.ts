import { ConfigError, PostboxError } from "../errors.js";
import type { Draft } from "../event/define-event.js";
import { following } from "../internal/following.js";
import { type Runtime, runtimeWith } from "../internal/runtime.js";
import { startStop } from "../internal/start-stop.js";
import { callback, checkOptions, count, type OptionRule, object, oneOf, text } from "../options.js";
import type { Outbox } from "../outbox/outbox.js";
import type { Telemetry } from "../telemetry/events.js";
import { telling } from "../telemetry/telling.js";
import { cronTicks } from "./cron-ticks.js";
import { keepTicking } from "./keep-ticking.js";
import { everyTicks, type Ticks } from "./ticks.js";

/** A recurring message: its draft, its recurrence, and what happens to missed ticks. */
export type ScheduleEntry = ScheduledMessage & Recurrence & MissedTicks;

interface ScheduledMessage {
  /**
   * The draft to publish at each tick, or a function that makes it from the time of the tick. The schedule sets its id.
   * If the function throws, it is called again after growing delays.
   */
  readonly message: Draft | ((tick: Date) => Draft);
}

type Recurrence =
  | {
      /**
       * Five fields: minute, hour, day of month, month and day of week; with six, the first one is the second. Needs
       * `croner` installed.
       */
      readonly cron: string;
      /** The time zone of `cron`, such as `Europe/Berlin`. Defaults to "UTC". */
      readonly timeZone?: string;
      readonly everyMs?: never;
    }
  | {
      /**
       * Ticks at every multiple of this many milliseconds since 1970 in UTC, so that a restart does not move the ticks.
       * A whole number.
       */
      readonly everyMs: number;
      readonly cron?: never;
      readonly timeZone?: never;
    };

type MissedTicks =
  | {
      /**
       * What to publish if several ticks are due, because no process ran. `one`: the latest. `all`: each of them.
       * `skip`: the latest if it is at most a minute late, else nothing. Defaults to `one`.
       */
      readonly missed?: "one" | "skip";
      readonly maxMissed?: never;
    }
  | {
      readonly missed: "all";
      /**
       * With `missed: "all"`, the latest ticks up to this number are published, in one transaction; older ones are
       * skipped. Defaults to 100.
       */
      readonly maxMissed?: number;
    };

/** Options of `createSchedule`. */
export interface ScheduleOptions {
  /** Receives its events. Defaults to warnings and errors on the console; `silent` turns that off. */
  readonly telemetry?: Telemetry;
  /** @experimental Time, randomness and failpoints. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

/** Publishes recurring messages. */
export interface Schedule {
  /**
   * Runs until the signal is aborted, and then finishes the current tick. Rejects only with errors that no retry can
   * resolve: an invalid cron expression, a missing `croner`, a missing or newer schema, or credentials that the
   * database refuses from the start. All other errors are reported to telemetry and retried.
   */
  run(signal?: AbortSignal): Promise<void>;
  /**
   * Runs in the background. Resolves to true when the database knows every entry, whose ticks count from then on, and
   * to false if `stop` was called first. Rejects with an error that no retry can resolve. You need not await it: then
   * telemetry reports the error, and `stop` rejects with it. Throws `already-started` while it runs.
   */
  start(): Promise<boolean>;
  /** Stops what `start` began, and waits for it. */
  stop(): Promise<void>;
  /** The same as `stop`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

const nameRule = /^[\w.:-]{1,100}$/;

const timeZoneRule: OptionRule = {
  expected: 'the name of a time zone, such as "Europe/Berlin"',
  test(value) {
    try {
      return typeof value === "string" && new Intl.DateTimeFormat("en", { timeZone: value }) !== undefined;
    } catch {
      return false;
    }
  },
};

const entryRules = {
  message: {
    expected: "a draft, such as Event.message(data), or a function that returns one",
    test: (value: unknown) => typeof value === "function" || object.test(value),
  },
  cron: text,
  timeZone: timeZoneRule,
  everyMs: count,
  missed: oneOf("one", "skip", "all"),
  maxMissed: count,
};

/**
 * Makes a schedule of recurring messages, each with a unique name in the store. Any number of processes may run it:
 * each tick is published once. A tick is claimed and its message appended in one transaction, so a crash leaves both or
 * neither. The database's clock decides what is due.
 *
 * An entry begins when the database first sees its name. A known name continues, also after a restart or with another
 * `cron`.
 *
 * @example
 * ```ts
 * const schedule = createSchedule(outbox, {
 *   nightly: {
 *     cron: "0 3 * * *",
 *     timeZone: "Europe/Berlin",
 *     message: (tick) => OrderPlaced.message({ orderId: tick.toISOString(), total: 0 }),
 *   },
 * });
 * await schedule.start();
 * ```
 */
export function createSchedule<Tx>(
  outbox: Outbox<Tx>,
  entries: Readonly<Record<string, ScheduleEntry>>,
  options: ScheduleOptions = {},
): Schedule {
  if (typeof outbox?.store?.tick !== "function") {
    throw new ConfigError("option-invalid", "createSchedule(outbox, entries): give what createOutbox(store) returned");
  }
  checkOptions("createSchedule", options, { telemetry: callback, runtime: object });
  for (const [name, entry] of Object.entries(entries)) checkEntry(name, entry);
  const runtime = runtimeWith(options.runtime);
  const telemetry = telling(options.telemetry);

  async function run(signal: AbortSignal, ready: () => void): Promise<void> {
    const stop = following(signal);
    let loops: Promise<void>[] = [];
    try {
      // Before the first tick of any entry: an invalid expression is a mistake of the deployment.
      const prepared: [string, ScheduleEntry, Ticks][] = [];
      for (const [name, entry] of Object.entries(entries)) prepared.push([name, entry, await ticksOf(name, entry)]);
      let unread = prepared.length;
      if (unread === 0) ready();
      const reached = () => {
        if (--unread === 0) ready();
      };
      loops = prepared.map(([name, entry, ticks]) =>
        keepTicking({ outbox, name, entry, ticks, reached, runtime, telemetry }, stop.signal),
      );
      await Promise.all(loops);
    } catch (thrown) {
      const error = PostboxError.from(thrown);
      telemetry({ name: "schedule.failed", error, retryInMs: Number.POSITIVE_INFINITY });
      throw error;
    } finally {
      stop.abort();
      await Promise.allSettled(loops);
    }
  }

  const background = startStop("schedule", run);
  return {
    run: (signal = new AbortController().signal) => run(signal, () => {}),
    start: () => background.start(),
    stop: () => background.stop(),
    [Symbol.asyncDispose]: () => background.stop(),
  };
}

async function ticksOf(name: string, { cron, timeZone = "UTC", everyMs }: ScheduleEntry): Promise<Ticks> {
  return cron === undefined ? everyTicks(everyMs) : cronTicks(name, cron, timeZone);
}

function checkEntry(name: string, entry: ScheduleEntry): void {
  const refuse = (why: string, path = name) => {
    throw new ConfigError("option-invalid", `createSchedule: ${why}`, { path });
  };
  if (!nameRule.test(name)) {
    refuse(`an entry's name must be 1 to 100 letters, digits and . _ : -; got ${JSON.stringify(name.slice(0, 120))}`);
  }
  checkOptions(`createSchedule: '${name}'`, entry, entryRules, ["message"]);
  const { cron, timeZone, everyMs, missed, maxMissed } = entry;
  if ((cron === undefined) === (everyMs === undefined)) refuse(`'${name}' needs one of cron and everyMs`);
  if (timeZone !== undefined && cron === undefined) {
    refuse(`timeZone of '${name}' has no effect without cron; leave it out`, `${name}.timeZone`);
  }
  if (maxMissed !== undefined && missed !== "all") {
    refuse(`maxMissed of '${name}' has no effect without missed: "all"; set both`, `${name}.maxMissed`);
  }
}
