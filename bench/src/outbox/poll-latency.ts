import { absolute } from "../figure.js";
import { latencies } from "../latency.js";
import type { Benchmark } from "../part.js";
import { percentile } from "../statistics.js";
import { boxOf } from "./boxes.js";
import { outboxLine } from "./outbox-line.js";

const [p50, p99] = ["outbox.latency.poll.p50", "outbox.latency.poll.p99"] as const;
const pollIntervalMs = 20;
const options = { samples: 120, pauseMs: [60, 90] } as const;

/** From commit to the sender's call in an idle system where the relay finds the message by polling. */
export const pollLatency: Benchmark = {
  names: [p50, p99],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const rounds: (readonly number[])[] = [];
    for (let round = 0; round < run.rounds; round++) {
      const samples = run.share(options.samples);
      rounds.push(await latencies((called) => outboxLine(box, called, { pollIntervalMs }), { ...options, samples }));
    }
    return [
      absolute(
        p50,
        "ms",
        rounds.map((values) => percentile(values, 50)),
      ),
      absolute(
        p99,
        "ms",
        rounds.map((values) => percentile(values, 99)),
      ),
    ];
  },
};
