import { exponential } from "../backoff.js";
import { PostboxError } from "../errors.js";
import type { Draft } from "../event/define-event.js";
import { type Runtime, sleep } from "../internal/runtime.js";
import { withTimeout } from "../internal/with-timeout.js";
import type { Outbox } from "../outbox/outbox.js";
import { fatal } from "../relay/drain-loop.js";
import type { ScheduleState, TickClaim } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import type { ScheduleEntry } from "./create-schedule.js";
import type { Ticks } from "./ticks.js";

export interface TickingOptions<Tx> {
  readonly outbox: Outbox<Tx>;
  readonly name: string;
  readonly entry: Pick<ScheduleEntry, "message" | "missed" | "maxMissed">;
  readonly ticks: Ticks;
  /** Called once, when the database has answered. */
  reached(): void;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
}

/** What the database said, when by this host's clock, and the tick after the last one. */
interface Known {
  readonly state: ScheduleState;
  readonly at: number;
  readonly next: number;
}

/**
 * A host's timer does not see that the database's clock was set, or that the host was asleep: it asks at least so
 * often.
 */
const longestPauseMs = 60_000;
/** A transaction takes milliseconds. One over a connection that was cut silently would never end. */
const transactionTimeoutMs = 10_000;
/**
 * With `missed: "skip"`, a tick that is later than this was missed: enough for a restart, and for a database that fails
 * over.
 */
const onTimeMs = 60_000;

const backoff = exponential({ maxMs: 10_000 });

/**
 * Publishes one entry at its ticks, until the signal is aborted. Every process does it: of those that try to move the
 * last tick of the entry on from the same one, the database lets one succeed. The message is appended in that
 * transaction.
 */
export async function keepTicking<Tx>(options: TickingOptions<Tx>, signal: AbortSignal): Promise<void> {
  const { outbox, name, entry, ticks, runtime, telemetry } = options;
  const { store } = outbox;
  const { missed = "one", maxMissed = 100 } = entry;
  const most = missed === "all" ? maxMissed : 1;
  let known: Known | undefined;
  let reached = false;

  /** The state, and with a tick an attempt to claim it and to publish its messages. */
  async function ask(
    tick?: TickClaim,
    drafts: readonly Draft[] = [],
  ): Promise<Known & { readonly ids: readonly string[] }> {
    const work = async (tx: Tx) => {
      const state = await store.tick(tx, name, tick);
      const published = state.claimed && drafts.length > 0 ? await outbox.in(tx).publishAll(drafts) : [];
      return { state, ids: published.map(({ id }) => id) };
    };
    const late = () =>
      new PostboxError(
        "store-timeout",
        `the transaction of a tick did not end within ${transactionTimeoutMs} ms; the schedule tries again`,
      );
    // Read committed, so that of two who claim the same tick, the second finds it taken instead of failing.
    const isolation = "read committed";
    const { state, ids } = await withTimeout(runtime, transactionTimeoutMs, late, (aborted) =>
      store.transaction(work, { isolation, signal: aborted }),
    );
    const next = known?.state.lastTick === state.lastTick ? known.next : ticks.next(state.lastTick);
    known = { state, at: runtime.monotonic(), next: next ?? Number.POSITIVE_INFINITY };
    if (!reached) options.reached();
    reached = true;
    return { ...known, ids };
  }

  /** The database's clock as far as it is known here: a little behind it, by the time that the answer took. */
  const nowIn = ({ state, at }: Known) => state.now + runtime.monotonic() - at;

  async function claim({ id, lastTick }: ScheduleState, now: number): Promise<Known> {
    const due = ticks.between(lastTick, now, most);
    const tick = due[due.length - 1] as number;
    const skipped = missed === "skip" && now - tick > onTimeMs;
    // Before the transaction, which locks the entry: a slow function must not keep other processes waiting.
    const drafts = skipped ? [] : due.map((at) => draftOf(entry.message, name, id, new Date(at)));
    const answer = await ask({ after: lastTick, tick }, drafts);
    const { state, ids } = answer;
    if (!state.claimed) return answer;
    const told = { schedule: name, tick: new Date(tick).toISOString(), lateMs: Math.round(state.now - tick) };
    telemetry(skipped ? { name: "schedule.skipped", ...told } : { name: "schedule.ticked", ...told, ids });
    return answer;
  }

  /** Answers with how long to wait. */
  async function step(): Promise<number> {
    const before = known;
    let current = before !== undefined && before.next <= nowIn(before) ? before : await ask();
    const now = nowIn(current);
    if (current.next <= now) current = await claim(current.state, now);
    return Math.min(Math.max(0, Math.ceil(current.next - nowIn(current))), longestPauseMs);
  }

  for (let failures = 0; !signal.aborted; ) {
    let pauseMs: number;
    try {
      pauseMs = await step();
      failures = 0;
    } catch (thrown) {
      const error = PostboxError.from(thrown, store.isRefused(thrown) ? "store-refused" : undefined);
      if (fatal.has(error.code) || (!reached && error.code === "store-refused")) throw error;
      // If its commit is in doubt, the next attempt claims from the same tick: the database refuses that where it has
      // committed.
      pauseMs = backoff(++failures, runtime.random);
      telemetry({ name: "schedule.failed", schedule: name, error, retryInMs: pauseMs });
    }
    await sleep(runtime, pauseMs, signal);
  }
}

/**
 * The draft of a tick. Its id follows from the tick, and from the entry in this database: the same tick of a service
 * that runs elsewhere, too, is another message to a consumer of both.
 */
function draftOf(message: ScheduleEntry["message"], name: string, id: string, tick: Date): Draft {
  const draft = typeof message === "function" ? message(new Date(tick)) : message;
  return { ...draft, options: { ...draft.options, id: `${name}/${tick.toISOString()}/${id}` } };
}
