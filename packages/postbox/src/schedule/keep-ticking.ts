import { exponential } from "../backoff.js";
import { PostboxError } from "../errors.js";
import type { Draft } from "../event/define-event.js";
import { answered } from "../internal/answer.js";
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

/** The database's answer, when it arrived by this host's clock, and the next tick. */
interface Known {
  readonly state: ScheduleState;
  readonly at: number;
  readonly next: number;
}

/**
 * A host's timer does not notice that the database's clock was set, or that the host was suspended, so the database is
 * asked at least this often.
 */
const longestPauseMs = 60_000;
/** A transaction takes milliseconds. Over a connection that was cut silently, it would never end. */
const transactionTimeoutMs = 10_000;
/**
 * With `missed: "skip"`, a tick that is later than this was missed: long enough for a restart, and for a failover of
 * the database.
 */
const onTimeMs = 60_000;

const backoff = exponential({ maxMs: 10_000 });

/**
 * Publishes one entry at its ticks, until the signal is aborted. Every process does this. If several claim the same
 * tick, the database lets one succeed, and the message is appended in that transaction.
 */
export async function keepTicking<Tx>(options: TickingOptions<Tx>, signal: AbortSignal): Promise<void> {
  const { outbox, name, entry, ticks, runtime, telemetry } = options;
  const { store } = outbox;
  const { missed = "one", maxMissed = 100 } = entry;
  const most = missed === "all" ? maxMissed : 1;
  let known: Known | undefined;
  let reached = false;

  /** Reads the state; with a tick, also tries to claim it and to publish its messages. */
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
    // Read committed, so that the second of two claims finds the tick taken instead of failing.
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

  /** The database's clock as known here: a little behind, by the time of the answer. */
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

  /** Returns how long to wait. */
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
      // If its COMMIT is in doubt, the next attempt claims from the same tick, which the database refuses if it has
      // committed.
      pauseMs = backoff(++failures, runtime.random);
      telemetry({ name: "schedule.failed", schedule: name, error, retryInMs: pauseMs });
    }
    await sleep(runtime, pauseMs, signal);
  }
}

/**
 * The draft of a tick. Its id is derived from the tick and from the entry in this database: for the same tick of a
 * service that also runs elsewhere, a consumer of both gets another message.
 */
function draftOf(message: ScheduleEntry["message"], name: string, id: string, tick: Date): Draft {
  const draft = typeof message === "function" ? answered(message(new Date(tick))) : message;
  return { ...draft, options: { ...draft.options, id: `${name}/${tick.toISOString()}/${id}` } };
}
