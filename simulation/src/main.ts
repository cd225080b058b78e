// `npm run simulate -- --seeds n --from n` plays histories and prints the totals. `--seed n` plays one history and
// prints every event.
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { type MessagePort, parentPort, Worker, workerData } from "node:worker_threads";
import { failpoints } from "postbox/store";
import { type Plan, planOf } from "./plan.js";
import { emptyTally, merge, runSeeds, type Tally, unmet } from "./run-seeds.js";
import { shrink } from "./shrink.js";
import { simulate } from "./simulate.js";
import { situations } from "./situations.js";

/** How many seeds a worker plays before it reports and asks for more. */
const portion = 100;
const mostTold = 10;
/** Longer than any history takes. */
const patienceMs = 60_000;

if (parentPort === null) await main();
else work(parentPort);

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seeds: { type: "string", default: "1000" },
      from: { type: "string", default: "1" },
      workers: { type: "string", default: String(Math.min(4, availableParallelism())) },
      first: { type: "boolean", default: false },
      seed: { type: "string" },
      plan: { type: "string" },
      trace: { type: "boolean", default: false },
    },
  });
  const [seeds, from, workers] = [values.seeds, values.from, values.workers].map(Number) as [number, number, number];
  if (values.plan !== undefined) return replay(JSON.parse(readFileSync(values.plan, "utf8")) as Plan, values.trace);
  const wanted = [seeds, from, workers, ...(values.seed === undefined ? [] : [Number(values.seed)])];
  if (!wanted.every((count) => Number.isInteger(count) && count >= 1)) {
    throw new Error(
      "usage: npm run simulate -- [--seeds n] [--from n] [--workers n] [--first], or --seed n, or --plan file " +
        "[--trace]",
    );
  }
  if (values.seed !== undefined) return replay(planOf(Number(values.seed)), values.trace);
  const started = performance.now();
  const tally = await share(from, seeds, workers, values.first);
  const [first] = tally.broken.sort((a, b) => a.seed - b.seed);
  report(tally, (performance.now() - started) / 1000);
  if (first === undefined) return;
  process.exitCode = 1;
  if (!values.first && first.rule !== "hung") await replay(planOf(first.seed), false);
}

/** Gives the seeds to several threads, one portion at a time, so that the lowest seeds are played first. */
async function share(from: number, seeds: number, workers: number, first: boolean): Promise<Tally> {
  const total = emptyTally();
  const started = performance.now();
  let next = from;
  const isDone = () => next >= from + seeds || (first && total.broken.length > 0);
  const oneThread = () =>
    new Promise<void>((resolve, reject) => {
      const current = new Int32Array(new SharedArrayBuffer(4));
      const worker = new Worker(new URL(import.meta.url), { workerData: current });
      const handOut = () => {
        if (isDone()) {
          clearInterval(watch);
          worker.postMessage(undefined);
          return resolve();
        }
        const begin = next;
        next += portion;
        worker.postMessage({ begin, count: Math.min(portion, from + seeds - begin), first } satisfies Portion);
      };
      worker.on("message", (tally: Tally) => {
        for (const { seed, rule } of tally.broken) console.log(`seed ${seed} broke ${rule}`);
        merge(total, tally);
        if (total.histories % 1000 < portion) progress(total, seeds, started);
        handOut();
      });
      // The worker's other seeds are not played: an exception or an endless history has to be examined first.
      const end = (rule: string, text: string) => {
        clearInterval(watch);
        total.broken.push({ seed: current[0] ?? 0, rule, text });
        worker.terminate().then(() => resolve(), reject);
      };
      let last = 0;
      const watch = setInterval(() => {
        if (current[0] === last) end("hung", `it did not end within ${patienceMs / 1000} s`);
        last = current[0] ?? 0;
      }, patienceMs);
      watch.unref();
      worker.once("error", (error) => end("threw", error.stack ?? error.message));
      handOut();
    });
  await Promise.all(Array.from({ length: workers }, oneThread));
  return total;
}

interface Portion {
  readonly begin: number;
  readonly count: number;
  readonly first: boolean;
}

function work(port: MessagePort): void {
  port.on("message", async (asked: Portion | undefined) => {
    if (asked === undefined) return port.close();
    const current = workerData as Int32Array;
    function* seeds() {
      for (let seed = (asked as Portion).begin; seed < (asked as Portion).begin + (asked as Portion).count; seed++) {
        current[0] = seed;
        yield seed;
      }
    }
    port.postMessage(await runSeeds(seeds(), ({ broken }) => asked.first && broken.length > 0));
  });
}

function progress({ histories, broken }: Tally, seeds: number, started: number): void {
  const rate = histories / ((performance.now() - started) / 1000);
  console.log(`${histories} of ${seeds} histories, ${rate.toFixed(0)} a second, ${broken.length} broken`);
}

function report(tally: Tally, seconds: number): void {
  console.log(
    `\n${tally.histories} histories, ${tally.events} events, ${(tally.histories / seconds).toFixed(1)} histories a ` +
      "second",
  );
  for (const situation of situations) {
    console.log(`${String(tally.situations.get(situation) ?? 0).padStart(9)}  ${situation}`);
  }
  console.log(`${String(tally.failpoints.size).padStart(9)}  of ${failpoints.length} failpoints were reached`);
  const missing = unmet(tally);
  if (missing.length > 0) console.log(`\nnothing is proven about: ${missing.join("; ")}`);
  for (const { seed, rule, text } of tally.broken.slice(0, mostTold))
    console.log(`\nseed ${seed} broke ${rule}: ${text}`);
  if (tally.broken.length > mostTold) console.log(`\nand ${tally.broken.length - mostTold} more seeds`);
  if (tally.broken.length === 0) console.log("\nno rule was broken");
}

/** Plays one history. If it breaks a rule, prints a shorter history that breaks the same rule. */
async function replay(plan: Plan, trace: boolean): Promise<void> {
  const { violations } = await simulate(plan, trace ? console.log : undefined);
  const [first] = violations;
  if (first === undefined) return console.log(`seed ${plan.seed} breaks no rule`);
  process.exitCode = 1;
  console.log(`\nseed ${plan.seed} breaks:`);
  for (const { rule, text } of violations) console.log(`  ${rule}: ${text}`);
  if (trace) return;
  const shorter = await shrink(plan, first.rule);
  console.log("\na shorter history that breaks the same rule:\n");
  const again = await simulate(shorter, console.log);
  for (const { rule, text } of again.violations) console.log(`  ${rule}: ${text}`);
  console.log(`\nits plan, for --plan file --trace, or to be kept in simulation/saved:\n${JSON.stringify(shorter)}`);
  console.log(`\nnpm run simulate -- --seed ${plan.seed} --trace tells the whole of it`);
}
