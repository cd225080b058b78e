import type { HistoryEvent, RestedBox } from "@postbox/testkit/history";
import type { Entry } from "./diary.js";

/** A row of the consumers' effects: committed, since it is there. */
export interface EffectRow {
  readonly consumer: string;
  readonly id: string;
  readonly key: string;
  /** How many effects of its consumer and key were committed when it was written. */
  readonly seen: number;
}

/** What the databases hold when all is over. */
export interface Remains {
  /** The transactions of the producers that have committed. */
  readonly committed: ReadonlySet<string>;
  readonly effects: readonly EffectRow[];
  readonly outbox: RestedBox;
}

/**
 * One history of what all processes have seen, and of what is left in the databases. Where nobody knows, it is what
 * convicts nobody who is innocent: a transaction without a known end ended last of all. But effects that did not see
 * each other happened in whichever order is wrong: one after the other was promised.
 */
export function historyOf(diaries: readonly (readonly Entry[])[], remains: Remains): HistoryEvent[] {
  const entries = diaries.flat().sort((a, b) => a.at - b.at);
  const history: HistoryEvent[] = [];
  const open = new Set<string>();
  const appendedAt = new Map<string, number>();
  for (const { at: _, ...event } of entries) {
    if (event.what === "unknown") continue;
    if (event.what === "appended") {
      open.add(event.tx);
      appendedAt.set(event.message.id, history.length);
    }
    if (event.what === "committed" || event.what === "rolled-back") {
      checkEnd(event.what, event.tx, remains.committed);
      open.delete(event.tx);
    }
    history.push(event);
  }
  for (const tx of open) history.push({ what: remains.committed.has(tx) ? "committed" : "rolled-back", tx });
  const lastFirst = (a: EffectRow, b: EffectRow) => (appendedAt.get(b.id) ?? 0) - (appendedAt.get(a.id) ?? 0);
  // Keys have nothing to do with each other, so that theirs may stand between.
  const effects = remains.effects.toSorted((a, b) => a.seen - b.seen || lastFirst(a, b));
  for (const [number, { consumer, id }] of effects.entries()) {
    const tx = `effect-${number}`;
    history.push({ what: "effect", tx, consumer, id }, { what: "committed", tx });
  }
  history.push({ what: "rested", box: "outbox", contents: remains.outbox });
  return history;
}

/** What the database has told and what it holds. */
function checkEnd(told: "committed" | "rolled-back", tx: string, committed: ReadonlySet<string>): void {
  if ((told === "committed") === committed.has(tx)) return;
  throw new Error(`${tx} was told as ${told}, which is not what the database holds`);
}
