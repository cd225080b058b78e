import { following } from "../internal/following.js";

/** Something that runs, in either way. */
export interface Running {
  run(signal: AbortSignal): Promise<void>;
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** Several that run as one. Those of `first` have ended before those of `last` are told to. */
export function runTogether(first: readonly Running[], last: readonly Running[]): Running {
  return {
    async run(signal) {
      const [endFirst, endLast] = [following(signal), new AbortController()];
      const firsts = first.map((each) => each.run(endFirst.signal));
      const lasts = last.map((each) => each.run(endLast.signal));
      const all = Promise.all([...firsts, ...lasts]);
      const aborted = new Promise<void>((resolve) => {
        endFirst.signal.addEventListener("abort", () => resolve(), { once: true });
        if (endFirst.signal.aborted) resolve();
      });
      try {
        // Where nothing runs, it still runs until it is told to end.
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
      const started: Running[] = [];
      const starting: Promise<void>[] = [];
      try {
        for (const each of [...first, ...last]) {
          starting.push(each.start());
          started.push(each);
        }
      } catch (error) {
        for (const each of started) each.stop().catch(() => {});
        throw error;
      }
      const all = Promise.all(starting).then(() => {});
      // As for each of them: nobody has to wait.
      all.catch(() => {});
      return all;
    },

    async stop() {
      const stopped = await Promise.allSettled(first.map((each) => each.stop()));
      stopped.push(...(await Promise.allSettled(last.map((each) => each.stop()))));
      const failed = stopped.find((each) => each.status === "rejected");
      if (failed !== undefined) throw failed.reason;
    },
  };
}
