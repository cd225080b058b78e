import { randomOrder } from "../outbox/placed.js";
import { within } from "../time-limit.js";
import type { PeerSetup } from "./installed-peers.js";
import type { Peer } from "./peer.js";

interface Boss {
  on(event: "error", listener: () => void): void;
  start(): Promise<unknown>;
  stop(options: object): Promise<void>;
  createQueue(name: string): Promise<void>;
  insert(jobs: readonly { name: string; data: object }[]): Promise<unknown>;
  send(name: string, data: object): Promise<unknown>;
  fetch(name: string, options: object): Promise<readonly { id: string }[]>;
  complete(name: string, ids: readonly string[]): Promise<unknown>;
  work(name: string, options: object, handler: () => Promise<void>): Promise<string>;
  offWork(worker: { id: string }): Promise<void>;
}

const insertAtOnce = 5_000;
const fetchAtOnce = 5_000;
const loops = 2;
const limitMs = 60_000;

export async function pgBoss({ module, version, database, ending }: PeerSetup): Promise<Peer> {
  const boss = new (module as new (options: object) => Boss)({
    connectionString: database.url,
    // No cron and no maintenance during a measurement.
    schedule: false,
    supervise: false,
  });
  boss.on("error", () => {});
  await boss.start();
  ending.add(() => boss.stop({ graceful: false, wait: false }));
  for (const queue of ["drain", "latency"]) await boss.createQueue(queue);
  const pool = database.pool(1);
  const empty = () => pool.query("TRUNCATE pgboss.job, pgboss.archive");

  return {
    name: "pg-boss",
    version,
    settings: "drain: two loops of fetch(5000) + complete; latency: work() with its shortest interval, 0.5 s",
    drainRows: 100_000,
    latencySamples: 8,
    async fill(rows) {
      await empty();
      await pool.query("CHECKPOINT");
      for (let left = rows; left > 0; left -= insertAtOnce) {
        const jobs = { length: Math.min(left, insertAtOnce) };
        await boss.insert(Array.from(jobs, () => ({ name: "drain", data: randomOrder() })));
      }
      await pool.query("ANALYZE");
    },
    async drain(rows) {
      let completed = 0;
      const loop = async () => {
        for (;;) {
          const ids = (await boss.fetch("drain", { batchSize: fetchAtOnce })).map(({ id }) => id);
          if (ids.length === 0) return;
          await boss.complete("drain", ids);
          completed += ids.length;
        }
      };
      const started = performance.now();
      const finished = Promise.all(Array.from({ length: loops }, loop));
      await within(limitMs, () => `pg-boss completed ${completed} of ${rows}`, finished);
      if (completed !== rows) throw new Error(`pg-boss completed ${completed} of ${rows}`);
      return (performance.now() - started) / 1000;
    },
    async open(called) {
      await empty();
      const id = await boss.work("latency", { pollingIntervalSeconds: 0.5 }, async () => called());
      return {
        send: async () => void (await boss.send("latency", randomOrder())),
        stop: () => boss.offWork({ id }),
      };
    },
  };
}
