import { PostboxError } from "../errors.js";
import { laneCount } from "../internal/lane.js";
import { sleep } from "../internal/runtime.js";
import { createWake } from "../internal/wake.js";
import type { LateRow, Row, WriterRange } from "../store.js";
import { type Decision, decide, expiry, unreadable } from "./deciding/decide.js";
import type { Engine, EngineOptions } from "./engine.js";
import { countCrashes } from "./isolation/count-crashes.js";
import { aloneFrom, createDoubt, createSuspicion, hopeless } from "./isolation/suspicion.js";
import { within } from "./reading/writer-ranges.js";
import { createBreaker } from "./sending/breaker.js";
import { createSettler } from "./settling/settler.js";
import type { Dispatched, RowOutcome } from "./target.js";

/** So often at most, what was passed is searched for messages that came late all the same; slower where it costs much. */
const lookBackMs = 1000;
const patience = 20;

/**
 * The engine for `order: "total"`: sends the messages of all lanes one after the other, in the order of their positions.
 * One that fails keeps its place, and everything waits for it.
 *
 * A position that is missing may belong to a transaction that is still open. Nothing beyond it is sent until it appears, or
 * until every transaction has ended that was open when a later position was found: then it was rolled back.
 */
export function createTotalEngine(options: EngineOptions): Engine {
  const { box, boxName, ownership, target, runtime, telemetry, batchSize } = options;
  const maxBytes = options.maxInFlightBytes;
  const decideOptions = { ...options, box: boxName, inPlace: true, random: runtime.random };
  const breaker = createBreaker(options);
  const suspicion = createSuspicion(3 * options.maxInFlight);
  const doubt = createDoubt();
  const news = createWake(runtime);
  const stored = createWake(runtime);
  /** For who drains: a wake rouses one. */
  const settled = createWake(runtime);
  const progress = () => {
    stored.wake();
    settled.wake();
  };
  const finish = new AbortController();
  /** In order, with nothing missing in between that could still come. */
  let queue: Row[] = [];
  /** Everything up to here is in the queue, or was. */
  let passed = 0;
  /** When all of these transactions have ended, nothing up to `upTo` is missing any more. */
  let gap: { readonly upTo: number; readonly open: readonly WriterRange[] } | undefined;
  /** What is in the queue, on its way, or not settled yet, by lane and position. */
  const live = new Set<string>();
  /** What is decided of a row and not stored yet. A confirmation may come while the row is sent again: the first outcome counts. */
  const decided = new Map<string, Decision>();
  /** Changes when the lanes are lost: whatever was begun before does not count any more. */
  let term = 0;
  let server: string | undefined;
  let pauseMs = 0;
  let drained = false;
  /** Whether a row is on its way; and whether it is to be the last. */
  let busy = false;
  let draining = false;

  const settler = createSettler({
    ...options,
    alone: false,
    settled({ row, to }) {
      if (to !== "pending") live.delete(nameOf(row));
      decided.delete(nameOf(row));
      target.stored?.(row);
      progress();
    },
    roomLeft: progress,
  });

  /** The first rows beyond what was passed, in order, and up to which position that is all there is. */
  async function readAhead(limit: number) {
    const every = Array.from({ length: laneCount }, (_, lane) => ({ lane, after: passed, limit }));
    const { rows, open, more, server } = await box.read(every, { maxBytes });
    const last = new Map(rows.map(({ lane, position }) => [lane, position]));
    const ends = [...more].map((lane) => last.get(lane));
    if (!ends.includes(undefined)) {
      const upTo = Math.min(Number.POSITIVE_INFINITY, ...(ends as number[]));
      return { rows: [...rows].sort(byPosition), open, upTo, server };
    }
    // The bytes ended the read before every lane had its turn, and what is first may be in one of the others.
    const gaps = every.map(({ lane }) => ({ lane, after: passed, upTo: Number.MAX_SAFE_INTEGER, known: [] }));
    const first = await box.late(gaps, limit, { maxBytes });
    const end = first.more ? first.rows.at(-1)?.position : undefined;
    return { rows: first.rows, open: first.open, upTo: end ?? Number.POSITIVE_INFINITY, server };
  }

  /** Brings more into the queue. Answers whether there was something, nothing, or something that has to wait. */
  async function refill(): Promise<"some" | "none" | "gap"> {
    const begun = term;
    const {
      rows: inOrder,
      open,
      upTo: readUpTo,
      server: answering,
    } = await readAhead(Math.max(1, Math.ceil(batchSize / 8)));
    if (inOrder.length > 0 && runtime.failpoint) await runtime.failpoint("relay.read");
    if (begun !== term) return "none";
    if (server !== undefined && answering !== undefined && answering !== server) {
      server = answering;
      telemetry({ name: "relay.server-changed", box: boxName, server });
      ownership.startAnew();
      return "some";
    }
    server = answering;
    const last = Math.min(inOrder.at(-1)?.position ?? 0, readUpTo);
    const isOver = gap === undefined || within(gap.open, open).length === 0;
    const closed = Math.max(isOver ? (gap?.upTo ?? 0) : 0, open.length === 0 ? last : 0);
    const next: Row[] = [];
    let isOpen = false;
    for (const row of inOrder) {
      if (row.position > readUpTo) break;
      isOpen = row.position > passed + 1 && row.position > closed;
      if (isOpen) break;
      next.push(row);
      passed = row.position;
    }
    if (isOpen && (isOver || (gap?.upTo ?? 0) <= passed)) {
      gap = { upTo: last, open };
      telemetry({ name: "relay.blocked", box: boxName, before: passed + 1 });
    }
    enqueue(next);
    if (next.length > 0) telemetry({ name: "relay.read", box: boxName, count: next.length });
    return next.length > 0 ? "some" : isOpen ? "gap" : "none";
  }

  function enqueue(rows: readonly Row[]): void {
    for (const row of rows) {
      live.add(nameOf(row));
      queue.push(suspicion.mark(row));
    }
  }

  /** What came after all below what was passed goes first, and what waits. */
  async function lookBack(): Promise<number> {
    const begun = term;
    const startedAt = runtime.monotonic();
    const before = new Set(live);
    const known = new Map<number, number[]>();
    for (const name of live) {
      const [lane = 0, position = 0] = name.split(" ").map(Number);
      const positions = known.get(lane) ?? [];
      positions.push(position);
      known.set(lane, positions);
    }
    const every = Array.from({ length: laneCount }, (_, lane) => lane);
    const gaps = every.map((lane) => ({ lane, after: 0, upTo: passed, known: known.get(lane) ?? [] }));
    const late: readonly LateRow[] = passed === 0 ? [] : (await box.late(gaps, 4 * batchSize, { maxBytes })).rows;
    // From a time when this box was relayed in another order.
    const due = await box.due(
      every.map((lane) => ({ lane, limit: batchSize })),
      { maxBytes },
    );
    const rows = [...late, ...due.filter((row) => !before.has(nameOf(row)) && !live.has(nameOf(row)))];
    if (begun === term && rows.length > 0) {
      for (const { message, ageMs } of late) telemetry({ name: "message.late", box: boxName, id: message.id, ageMs });
      const rest = queue;
      queue = [];
      enqueue(rows.sort(byPosition));
      queue = queue.concat(rest);
    }
    return runtime.monotonic() - startedAt;
  }

  /** Sends one row. Answers after how long its next try, or the next row, may come. */
  async function send(row: Row, signal: AbortSignal): Promise<number> {
    const begun = term;
    const name = nameOf(row);
    const isSuspect = row.crashes >= aloneFrom;
    let decision = decided.get(name);
    const report = (outcome: RowOutcome) => {
      // One that was given back keeps its place: its turn is still the next.
      if (begun !== term || outcome.status === "released") return;
      // Nothing takes rows out of a box that is read in total order but this.
      if (outcome.status === "handled" || decided.has(name) || !live.has(name)) return;
      decision = decide(row, outcome, undefined, decideOptions);
      if (decision.settlement.to !== "pending") decided.set(name, decision);
      // At once: its consumer may wait until that is stored before it lets go of the row.
      settler.add([decision]);
    };
    const end = hopeless(row) ?? unreadable(row) ?? (options.expired === "send" ? undefined : expiry(row, runtime));
    let waitMs = 0;
    if (end !== undefined) report(end);
    else if (decision === undefined && live.has(name)) {
      // One that may kill is alone on its way, and nothing is unsettled: at a death, that would be suspected with it.
      while (isSuspect && begun === term && settler.size > 0 && !signal.aborted) await stored.wait(signal);
      if (begun !== term || (isSuspect && signal.aborted)) return 0;
      const { down, died = false } = await attempt(row, report);
      if (begun !== term) return 0;
      if (down === undefined) breaker.close();
      else {
        if (died && decision === undefined && doubt.died([row])) queue[0] = { ...row, crashes: row.crashes + 1 };
        waitMs = breaker.open(down);
        options.failed(down, waitMs);
      }
    }
    decision ??= decided.get(name);
    if (decision === undefined) {
      // An earlier try was confirmed meanwhile, and that is stored.
      if (!live.has(name)) queue.shift();
      return waitMs;
    }
    if (decision.settlement.to === "sent") doubt.sent();
    const { settlement, event } = decision;
    if (settlement.to === "pending") {
      queue[0] = { ...row, attempts: settlement.attempts, crashes: 0 };
      return event?.name === "message.failed" ? Math.max(event.retryInMs, waitMs) : waitMs;
    }
    queue.shift();
    // Until it is stored that this one is set aside, who takes over would send it after the next one; or suspect both.
    if (settlement.to !== "sent" || isSuspect) {
      while (begun === term && live.has(nameOf(row)) && !signal.aborted) await stored.wait(signal);
    }
    return waitMs;
  }

  /** Whether somebody has removed what failed and holds up everything. Takes it out of the queue. */
  async function isGone(row: Row): Promise<boolean> {
    if (row.attempts === 0 || row.waiting) return false;
    const begun = term;
    const { rows } = await box.read([{ lane: row.lane, after: row.position - 1, limit: 1 }]);
    if (begun !== term || rows[0]?.position === row.position) return begun !== term;
    queue.shift();
    live.delete(nameOf(row));
    return true;
  }

  async function attempt(row: Row, report: (outcome: RowOutcome) => void): Promise<Dispatched> {
    const begun = term;
    try {
      await countCrashes([row], options);
    } catch (error) {
      return { undecided: [row], down: PostboxError.from(error) };
    }
    // It may have turned out to be another's.
    if (begun !== term) return { undecided: [row] };
    const dispatched = await target.handOver([row], (_, outcome) => report(outcome), ownership.epochs);
    await target.idle?.();
    return dispatched;
  }

  async function loop(signal: AbortSignal): Promise<void> {
    let lookAt = 0;
    let failures = 0;
    while (!signal.aborted) {
      if (draining || ownership.paused() || ownership.epochs.size < laneCount || !ownership.trusted()) {
        await news.wait(signal, options.pollIntervalMs);
        continue;
      }
      try {
        if (runtime.monotonic() >= lookAt) {
          lookAt = runtime.monotonic() + Math.max(lookBackMs, patience * (await lookBack()));
        }
        const [row] = queue;
        // It may have begun while this looked around.
        if (draining) continue;
        if (row !== undefined && (await isGone(row))) continue;
        if (row !== undefined && settler.size < 2 * options.maxInFlight) {
          busy = true;
          const pauseMs = await send(row, signal).finally(() => {
            busy = false;
            progress();
          });
          if (pauseMs > 0) await sleep(runtime, pauseMs, signal);
        } else if (row !== undefined) {
          await stored.wait(signal);
        } else {
          const found = await refill();
          failures = 0;
          if (found === "none" && !drained) telemetry({ name: "relay.drained", box: boxName });
          drained = found === "none";
          pauseMs = found === "some" ? 0 : Math.min(options.pollIntervalMs, Math.max(1, 2 * pauseMs));
          if (pauseMs > 0) await news.wait(signal, pauseMs);
        }
      } catch (error) {
        if (options.isFatal(error)) throw error;
        const retryInMs = options.storeBackoff(++failures);
        options.failed(error, retryInMs);
        await sleep(runtime, retryInMs, signal);
      }
    }
  }

  return {
    gained(lanes) {
      suspicion.add(lanes.filter(({ clean }) => !clean).map(({ lane }) => lane));
      news.wake();
    },
    lost(lanes) {
      term++;
      draining = false;
      queue = [];
      passed = 0;
      gap = undefined;
      live.clear();
      decided.clear();
      for (const lane of lanes) {
        suspicion.remove(lane);
        settler.drop(lane);
      }
      progress();
    },
    resume: () => news.wake(),
    notified() {
      pauseMs = 0;
      news.wake();
    },
    // What waits is not looked for more often than what came late.
    dueIn() {},
    async drain(lanes) {
      draining = true;
      const deadline = runtime.monotonic() + 2 * options.publishTimeoutMs;
      while (busy || settler.size > 0) {
        const leftMs = deadline - runtime.monotonic();
        if (leftMs <= 0 || finish.signal.aborted) {
          draining = false;
          return [];
        }
        await settled.wait(finish.signal, leftMs);
      }
      return lanes;
    },
    async run(signal) {
      const sending = loop(signal).finally(() => finish.abort());
      await Promise.all([sending, settler.run(finish.signal)]);
    },
  };
}

function nameOf({ lane, position }: Row): string {
  return `${lane} ${position}`;
}

function byPosition(a: Row, b: Row): number {
  return a.position - b.position;
}
