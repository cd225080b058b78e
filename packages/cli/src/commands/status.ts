import { setTimeout as sleep } from "node:timers/promises";
import type { Admin, AnyProblem, BoxStats } from "postbox/admin";
import type { Call, CommandDefinition } from "../call.js";
import { duration, readDuration } from "../duration.js";
import { type ExitCode, exitCodes } from "../exit-codes.js";
import { problemLine } from "../problem-line.js";
import { type BoxFlags, boxOf, withBox } from "../selection.js";
import { type Column, count, table } from "../table.js";

interface Flags extends BoxFlags {
  readonly watch?: boolean;
  readonly interval: number;
  readonly check?: boolean;
}

/** The figures of a box at a moment. */
interface Sight {
  readonly box: string;
  readonly stats: BoxStats;
  readonly atMs: number;
}

/** Shows what the boxes contain, who drains them, and what is wrong. */
export const status: CommandDefinition<Flags> = {
  name: "status",
  summary: "Show the backlog, the relays, and what is wrong",
  description:
    "Shows each box: how many messages wait and for how long, which keys are held, which relays own its lanes, and " +
    "what is wrong, with what to do. It counts the messages, which takes a while with millions of them.",
  flags: (command) =>
    withBox(command)
      .option("--watch", "redraw until Ctrl-C, with rates")
      .option("--interval <duration>", "how often to redraw", readDuration, 2_000)
      .option("--check", "exit code 7 if there is an error among the problems"),
  examples: ["postbox status", "postbox status --watch", "postbox status --consumer billing --json"],
  async run(call) {
    const { flags, signal, terminal } = call;
    let before: readonly Sight[] = [];
    for (;;) {
      const [sights, problems] = await look(call);
      const shown = { sights, problems, rates: ratesOf(before, sights) };
      if (flags.json) terminal.json(recordOf(shown));
      else {
        const lines = linesOf(shown, terminal.columns);
        if (flags.watch) terminal.clear();
        for (const line of lines) terminal.out(line);
      }
      if (!flags.watch) return codeOf(problems, flags);
      before = sights;
      await sleep(flags.interval, undefined, { signal }).catch(() => {});
      if (signal.aborted) return exitCodes.done;
    }
  },
};

async function look(call: Call<Flags>): Promise<[readonly Sight[], readonly AnyProblem[]]> {
  const { store } = await call.database();
  const box = boxOf(call.flags);
  const health = await store.health(box);
  const isAway = health.problems.some(({ code }) => code === "unreachable" || code === "store-refused");
  if (isAway || health.problems.some(({ code }) => code.startsWith("schema-"))) return [[], health.problems];
  const names = box.box === undefined ? await store.admin.boxes() : [box.box];
  const sights: Sight[] = [];
  for (const name of names) sights.push(await sightOf(store.admin, name));
  return [sights, health.problems];
}

async function sightOf(admin: Admin, box: string): Promise<Sight> {
  const stats = await admin.stats({ box });
  return { box, stats, atMs: performance.now() };
}

function codeOf(problems: readonly AnyProblem[], { check }: Flags): ExitCode {
  const code = problems.find(({ severity }) => severity === "error")?.code;
  if (code === "unreachable") return exitCodes.unreachable;
  if (code === "store-refused") return exitCodes.refused;
  if (code?.startsWith("schema-")) return exitCodes.schema;
  return check && code !== undefined ? exitCodes.attention : exitCodes.done;
}

interface Shown {
  readonly sights: readonly Sight[];
  readonly problems: readonly AnyProblem[];
  /** How fast the backlog of each box grows, per second; below 0 if it shrinks. */
  readonly rates: ReadonlyMap<string, number>;
}

function ratesOf(before: readonly Sight[], now: readonly Sight[]): ReadonlyMap<string, number> {
  const rates = new Map<string, number>();
  for (const { box, stats, atMs } of now) {
    const last = before.find((sight) => sight.box === box);
    if (last === undefined) continue;
    rates.set(box, ((stats.pending.count - last.stats.pending.count) / (atMs - last.atMs)) * 1000);
  }
  return rates;
}

const columns: readonly Column<Sight & { readonly rate?: number }>[] = [
  { title: "BOX", of: ({ box, stats }) => (stats.paused ? `${box} (paused)` : box) },
  { title: "PENDING", of: ({ stats }) => count(stats.pending.count), right: true },
  { title: "OLDEST", of: ({ stats }) => age(stats.pending.oldestAgeMs), right: true },
  { title: "GROWS", of: ({ rate }) => (rate === undefined ? "-" : perSecond(rate)), right: true },
  { title: "WAITING", of: ({ stats }) => count(stats.waiting.count), right: true },
  { title: "SCHEDULED", of: ({ stats }) => count(stats.scheduled.count), right: true },
  { title: "PARKED", of: ({ stats }) => count(stats.parked.count), right: true },
  { title: "HELD KEYS", of: ({ stats }) => count(stats.heldKeys.count), right: true },
  { title: "RELAYS", of: ({ stats }) => count(stats.lanes.owners.length), right: true },
  { title: "FREE LANES", of: ({ stats }) => count(stats.lanes.unowned), right: true },
];

const age = (ms: number | undefined) => (ms === undefined ? "-" : duration(ms));
const perSecond = (rate: number) => `${rate > 0 ? "+" : ""}${count(Math.round(rate))}/s`;

function linesOf({ sights, problems, rates }: Shown, width: number | undefined): string[] {
  const rows = sights.map((sight) => ({ ...sight, ...rateIn(rates, sight.box) }));
  const lines = sights.length === 0 ? [] : table(columns, rows, width);
  const owners = sights.flatMap(({ box, stats }) => stats.lanes.owners.map((owner) => ({ box, ...owner })));
  if (owners.length > 0) {
    const relays = table(
      [
        { title: "RELAY", of: ({ owner }) => owner },
        { title: "OF", of: ({ box }) => box },
        { title: "LANES", of: ({ lanes }) => count(lanes), right: true },
        { title: "", of: ({ lives }) => (lives ? "" : "has crashed") },
      ],
      owners,
      width,
    );
    lines.push("", ...relays);
  }
  lines.push("", problems.length === 0 ? "No problems." : "PROBLEMS");
  lines.push(...problems.map(problemLine));
  return lines;
}

function rateIn(rates: ReadonlyMap<string, number>, box: string): { readonly rate?: number } {
  const rate = rates.get(box);
  return rate === undefined ? {} : { rate };
}

function recordOf({ sights, problems, rates }: Shown) {
  const boxes = sights.map(({ box, stats }) => ({ box, ...stats, ...rateIn(rates, box) }));
  return { healthy: problems.every(({ severity }) => severity !== "error"), boxes, problems };
}
