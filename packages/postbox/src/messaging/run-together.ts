import { setMaxListeners } from "node:events";
import { following } from "../internal/following.js";

/** Something that can run until a signal, or between `start` and `stop`. */
export interface Running {
  /** Calls `ready` once it works. */
  run(signal: AbortSignal, ready?: () => void): Promise<void>;
  /** Resolves to whether it runs: false if it was stopped first. */
  start(): Promise<boolean>;
  stop(): Promise<void>;
}

/**
 * Runs several as one. Those of `last` start when each of `first` is ready or has failed, and are stopped when all of
 * `first` have ended.
 */
export function runTogether(first: readonly Running[], last: readonly Running[]): Running {
  /** Changes with every start and stop, so that a start which is still pending then starts nothing more. */
  let term = 0;
  return {
    async run(signal) {
      const [endFirst, endLast] = [following(signal), new AbortController()];
      // Each of them listens, and more inside of them: Node.js would warn about a leak.
      for (const each of [endFirst, endLast]) setMaxListeners(0, each.signal);
      const ready = first.map(() => gate());
      const firsts = first.map((each, index) =>
        each.run(endFirst.signal, ready[index]?.open).finally(ready[index]?.open),
      );
      const allReady = Promise.all(ready.map(({ opened }) => opened));
      const lasts = last.map(async (each) => {
        await allReady;
        if (!endFirst.signal.aborted) await each.run(endLast.signal);
      });
      const all = Promise.all([...firsts, ...lasts]);
      const aborted = new Promise<void>((resolve) => {
        endFirst.signal.addEventListener("abort", () => resolve(), { once: true });
        if (endFirst.signal.aborted) resolve();
      });
      try {
        // With nothing to run, it still runs until it is stopped.
        await (firsts.length + lasts.length === 0 ? aborted : Promise.race([aborted, all]));
      } finally {
        endFirst.abort();
        await Promise.allSettled(firsts);
        endLast.abort();
        await Promise.allSettled(lasts);
      }
      await all;
    },

    start() {
      const begun = ++term;
      const started: Running[] = [];
      const starting: Promise<boolean>[] = [];
      try {
        for (const each of first) {
          starting.push(each.start());
          started.push(each);
        }
      } catch (error) {
        for (const each of started) each.stop().catch(() => {});
        throw error;
      }
      const lasts = Promise.allSettled(starting).then(() =>
        term === begun ? Promise.all(last.map((each) => each.start())) : [false],
      );
      const all = Promise.all([...starting, lasts]).then((run) => run.flat().every((runs) => runs));
      // The caller need not await it, as with each of them.
      all.catch(() => {});
      return all;
    },

    async stop() {
      term++;
      const stopped = await Promise.allSettled(first.map((each) => each.stop()));
      stopped.push(...(await Promise.allSettled(last.map((each) => each.stop()))));
      const failed = stopped.find((each) => each.status === "rejected");
      if (failed !== undefined) throw failed.reason;
    },
  };
}

function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
}
