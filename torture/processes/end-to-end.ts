import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { checkHistory, type HistoryEvent, type Promises, type Violation } from "@postbox/testkit/history";
import { historyOf } from "./history-of.js";
import { type Consumer, consumers } from "./part.js";
import { type Fault, planOf } from "./plan.js";
import { openStage, type Stage, type StageOptions } from "./stage.js";

/** What came of a run. */
export interface RunReport {
  /** By the history. Its files are in `folder` when there are any. */
  readonly violations: readonly Violation[];
  /** What is wrong beside it: processes that ended badly, or what is left in queues and inboxes. */
  readonly complaints: readonly string[];
  readonly folder: string;
  readonly committed: number;
  readonly rolledBack: number;
  /** How often a message was accepted by the broker, was delivered, and had its effect. */
  readonly accepted: number;
  readonly delivered: Readonly<Record<Consumer, number>>;
  readonly effects: Readonly<Record<Consumer, number>>;
  /** How many were accepted before anything went wrong: of these none may be so twice. */
  readonly calm: number;
  readonly faults: readonly Fault[];
}

/**
 * `billing` has two processes on one queue, and promises no order of effects. Each process of `ledger` has a queue, or
 * the partitions, of its own.
 */
const promises: Promises = {
  boxes: [
    { box: "outbox", order: "key", consumers: [{ consumer: "billing" }, { consumer: "ledger", effectsInOrder: true }] },
  ],
};

/**
 * Two producers, two relays and two processes of each of two consumers, with PostgreSQL at both ends and a broker
 * between them. What the seed has drawn befalls them, others take their places, and everything is drained. Then what
 * was seen is judged.
 */
export async function endToEnd(options: StageOptions): Promise<RunReport> {
  const stage = await openStage(options);
  const { cast, tables, queues, folder } = stage;
  try {
    const { faults, complaints } = await perform(stage, planOf(options.seed), options.messages);
    for (const [name, actor] of cast) {
      const code = await actor.stop();
      if (code !== 0) complaints.push(`${name} ended with ${code}`);
    }
    // What was not acked is in its queue again by now.
    const depth = await queues.depth();
    if (depth > 0) complaints.push(`${depth} messages are left in queues`);
    const { inbox, ...remains } = await tables.remains();
    for (const { id, status, error } of inbox) complaints.push(`${id} is left in an inbox: ${status}, ${error}`);

    const history = historyOf(stage.diaries(), remains);
    const violations = checkHistory(history, promises);
    if (violations.length + complaints.length === 0) rmSync(folder, { recursive: true });
    else writeFileSync(join(folder, "history.jsonl"), history.map((event) => `${JSON.stringify(event)}\n`).join(""));
    return { violations, complaints, folder, ...countsOf(history), faults };
  } finally {
    await stage.close();
  }
}

/** How often to look how far it is; and for how long nothing may move before it is given up. */
const tickMs = 200;
const patienceMs = 20_000;

/** Lets happen what is planned, until everything is drained, or nothing moves any more. */
async function perform({ cast, tables, queues, befall, diaries }: Stage, plan: Fault[], messages: number) {
  const faults: Fault[] = [];
  const complaints: string[] = [];
  const underWay = new Set<Promise<void>>();
  const producers = [...cast].flatMap(([name, actor]) => (name.startsWith("producer") ? [actor] : []));
  let [state, movedAt] = ["", Date.now()];

  for (const actor of cast.values()) actor.start();
  for (; ; await pause(tickMs)) {
    const counts = await tables.counts();
    const done = {
      accepted: queues.accepted() / messages,
      effects: counts.effects / (messages * consumers.length),
    };
    const [fault] = plan.filter(({ whom, after, of }) => after <= done[of] && cast.get(whom)?.plays);
    if (fault !== undefined) {
      plan.splice(plan.indexOf(fault), 1);
      faults.push(fault);
      const over = befall(fault).finally(() => underWay.delete(over));
      underWay.add(over);
    }
    if (underWay.size > 0) movedAt = Date.now();
    else {
      const fallen = [...cast].filter(([, { plays, done }]) => !plays && !done).map(([name]) => name);
      if (fallen.length > 0) complaints.push(`${fallen.join(", ")} ended without anybody's doing`);
      const drained = counts.unsent + counts.kept === 0 && (await queues.depth()) === 0;
      const committed = producers.every(({ done }) => done) && drained && committedIn(diaries().flat());
      if (fallen.length > 0 || (committed !== false && counts.effects >= committed * consumers.length)) break;
    }
    if (state !== JSON.stringify(counts)) [state, movedAt] = [JSON.stringify(counts), Date.now()];
    if (Date.now() - movedAt < patienceMs) continue;
    complaints.push(`nothing moves any more: ${state}`);
    break;
  }
  return { faults, complaints };
}

interface OfTransaction {
  readonly what: string;
  readonly tx?: string;
}

/** How many messages are known to be committed. */
function committedIn(events: readonly OfTransaction[]): number {
  const committed = new Set(events.flatMap(({ what, tx }) => (what === "committed" ? [tx] : [])));
  return events.filter(({ what, tx }) => what === "appended" && committed.has(tx)).length;
}

function countsOf(history: readonly HistoryEvent[]) {
  const count = (test: (event: HistoryEvent) => boolean) => history.filter(test).length;
  const ofEach = (what: "delivered" | "effect") => ({
    billing: count((event) => event.what === what && event.consumer === "billing"),
    ledger: count((event) => event.what === what && event.consumer === "ledger"),
  });
  const firstFault = history.findIndex(({ what }) => what === "fault");
  return {
    calm: history.slice(0, firstFault).filter(({ what }) => what === "accepted").length,
    committed: committedIn(history),
    rolledBack: count(({ what }) => what === "rolled-back"),
    accepted: count(({ what }) => what === "accepted"),
    delivered: ofEach("delivered"),
    effects: ofEach("effect"),
  };
}
