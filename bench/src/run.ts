// npm run bench -- <part>: measures, prints, and leaves nothing behind.
import { brokers } from "./brokers/brokers.js";
import { busyCores } from "./busy-cores.js";
import { commandLine } from "./command-line.js";
import { createDatabase } from "./database.js";
import { createEnding, endInAnyCase } from "./ending.js";
import { type Figure, missing } from "./figure.js";
import { inbox } from "./inbox/inbox.js";
import { machineFacts } from "./machine.js";
import { outbox } from "./outbox/outbox.js";
import type { Benchmark, Part, Run } from "./part.js";
import { installedPeers } from "./peers/installed-peers.js";
import { jsonLine, table } from "./report.js";
import { tuning } from "./tuning/tuning.js";

/** Benchmarks that have not started by then are left out. The last ones take seconds. */
const lastStartMs = 7 * 60_000;
const quickShare = 0.1;
const lookForOthersMs = 500;
const othersMayTake = 0.2;

const parts: Readonly<Record<string, Part>> = { outbox, inbox, brokers, tuning };

const asked = commandLine(process.argv.slice(2));
const part = parts[asked.part];
if (part === undefined) throw new Error(`there is no part '${asked.part}'; there is ${Object.keys(parts).join(", ")}`);
const benchmarks = part.benchmarks.filter(({ names }) => names.some(isWanted));
if (benchmarks.length === 0)
  throw new Error(`no benchmark has this name; there is ${Object.keys(part.bars).join(", ")}`);

const ending = createEnding();
endInAnyCase(ending);
const started = performance.now();
try {
  for (const fact of await machineFacts()) tell(fact);
  if (asked.quick) tell("quick: a tenth of the rows; these figures mean little");
  const figures = await measureAll(await createRun());
  if (!asked.json) console.log(`\n${table(figures, part.bars)}`);
} finally {
  await ending.run();
}

async function createRun(): Promise<Run> {
  const database = await createDatabase(ending);
  const made = new Map<string, Promise<unknown>>();
  const once = <T>(name: string, make: () => Promise<T>): Promise<T> => {
    const thing = made.get(name) ?? make();
    made.set(name, thing);
    return thing as Promise<T>;
  };
  return {
    database,
    ending,
    once,
    rounds: asked.rounds,
    share: (full) => Math.ceil(asked.quick ? full * quickShare : full),
    peers: () => once("peers", () => installedPeers(database, ending, tell)),
  };
}

async function measureAll(run: Run): Promise<readonly Figure[]> {
  const figures: Figure[] = [];
  let others = 0;
  for (const benchmark of benchmarks) {
    const busy = await busyCores(lookForOthersMs);
    others = Math.max(others, busy);
    tell(`${elapsed()} ${benchmark.names.filter(isWanted).join(", ")} (others take ${busy.toFixed(1)} cores)`);
    for (const figure of await measured(benchmark, run)) {
      const hasBar = Object.hasOwn(part?.bars ?? {}, figure.name);
      if (hasBar && !isWanted(figure.name)) continue;
      figures.push(figure);
      if (asked.json) console.log(jsonLine(figure, part?.bars[figure.name]));
    }
  }
  tell(`${elapsed()} done`);
  if (others > othersMayTake) {
    // Not even the ratios hold: a side that uses two cores loses less to other load than a side that uses one at a
    // time.
    tell(`✗ others took up to ${others.toFixed(1)} cores between the benchmarks: these figures are not valid`);
  }
  return figures;
}

/** If a benchmark fails, its names report the error and the others continue. */
async function measured(benchmark: Benchmark, run: Run): Promise<readonly Figure[]> {
  if (performance.now() - started > lastStartMs) {
    return benchmark.names.map((name) => missing(name, "left out: the time limit of this part was reached"));
  }
  try {
    return await benchmark.measure(run);
  } catch (error) {
    process.exitCode = 1;
    return benchmark.names.map((name) => missing(name, `failed: ${error instanceof Error ? error.message : error}`));
  }
}

function isWanted(name: string): boolean {
  return asked.only.length === 0 || asked.only.some((wanted) => name === wanted || name.startsWith(`${wanted}.`));
}

function elapsed(): string {
  const seconds = Math.round((performance.now() - started) / 1000);
  return `${String(Math.floor(seconds / 60))}:${String(seconds % 60).padStart(2, "0")}`;
}

/** Writes to stderr, so that `--json` prints only figures to stdout. */
function tell(text: string): void {
  console.error(text);
}
