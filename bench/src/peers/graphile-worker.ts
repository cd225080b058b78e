import { randomOrder } from "../outbox/placed.js";
import { within } from "../time-limit.js";
import type { PeerSetup } from "./installed-peers.js";
import type { Peer } from "./peer.js";

interface GraphileWorker {
  readonly Logger: new (factory: () => () => void) => unknown;
  run(options: object): Promise<{ stop(): Promise<void> }>;
  makeWorkerUtils(options: object): Promise<{
    migrate(): Promise<void>;
    addJobs(jobs: readonly { identifier: string; payload: unknown }[]): Promise<unknown>;
    release(): Promise<void>;
  }>;
}

const task = "place";
const addAtOnce = 5_000;
const limitMs = 60_000;

/** The settings of its performance page: many concurrent jobs, a local queue of 500, batched completion. */
const fastest = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

export async function graphileWorker({ module, version, database, ending }: PeerSetup): Promise<Peer> {
  const { Logger, run, makeWorkerUtils } = module as GraphileWorker;
  const pool = database.pool(2);
  const shared = { connectionString: database.url, logger: new Logger(() => () => {}), noHandleSignals: true };
  const utils = await makeWorkerUtils(shared);
  await utils.migrate();
  ending.add(() => utils.release());
  /** Otherwise it would scan the dead rows of the previous round, which no other side has to. */
  const empty = () => pool.query("TRUNCATE graphile_worker._private_jobs");

  return {
    name: "graphile-worker",
    version,
    settings: "drain: 24 jobs at once, localQueue 500, batched completion; latency: its defaults, woken by NOTIFY",
    drainRows: 100_000,
    latencySamples: 150,
    async fill(rows) {
      await empty();
      await pool.query("CHECKPOINT");
      for (let left = rows; left > 0; left -= addAtOnce) {
        const jobs = Array.from({ length: Math.min(left, addAtOnce) }, () => ({
          identifier: task,
          payload: randomOrder(),
        }));
        await utils.addJobs(jobs);
      }
      await pool.query("ANALYZE");
    },
    async drain(rows) {
      let handled = 0;
      let finish = () => {};
      const finished = new Promise<void>((resolve) => {
        finish = resolve;
      });
      const handle = async () => {
        if (++handled === rows) finish();
      };
      const started = performance.now();
      const runner = await run({ ...shared, preset: { worker: fastest }, taskList: { [task]: handle } });
      try {
        await within(limitMs, () => `graphile-worker handled ${handled} of ${rows}`, finished);
        return (performance.now() - started) / 1000;
      } finally {
        await runner.stop();
      }
    },
    async open(called) {
      await empty();
      const runner = await run({ ...shared, taskList: { [task]: async () => called() } });
      return {
        send: async () =>
          void (await pool.query("SELECT graphile_worker.add_job($1, $2::json)", [task, randomOrder()])),
        stop: () => runner.stop(),
      };
    },
  };
}
