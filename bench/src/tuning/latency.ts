import { absolute } from "../figure.js";
import { latencies } from "../latency.js";
import { boxOf } from "../outbox/boxes.js";
import { outboxLine } from "../outbox/outbox-line.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";
import { percentile } from "../statistics.js";

const settings = {
  "poll-20": { pollIntervalMs: 20 },
  "poll-100": { pollIntervalMs: 100 },
  "poll-500": { pollIntervalMs: 500 },
  hint: { notifies: true },
} as const;
type Setting = keyof typeof settings;
const percents = { p50: 50, p99: 99 } as const;

/** From commit to the sender's call in an idle system, by how the relay learns of the message. */
export const latency: Benchmark = {
  names: ["tuning.latency"],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const names = Object.keys(settings) as Setting[];
    const measure = (setting: Setting) => () =>
      latencies((called) => outboxLine(box, called, settings[setting]), {
        samples: run.share(40),
        // The pauses exceed the poll interval of the slowest setting, so that the system is idle each time.
        pauseMs: setting === "poll-500" ? [600, 1100] : [150, 250],
      });
    const rounds = await alternate<Setting, readonly number[]>(
      run.rounds,
      Object.fromEntries(names.map((name) => [name, measure(name)])) as Record<
        Setting,
        () => Promise<readonly number[]>
      >,
    );
    return names.flatMap((name) =>
      Object.entries(percents).map(([label, percent]) =>
        absolute(
          `tuning.latency.${name}.${label}`,
          "ms",
          rounds[name].map((values) => percentile(values, percent)),
        ),
      ),
    );
  },
};
