import { absolute, compared, type Figure, missing } from "../figure.js";
import { latencies } from "../latency.js";
import type { Benchmark, Run } from "../part.js";
import type { Peer } from "../peers/peer.js";
import { alternate } from "../rounds.js";
import { percentile } from "../statistics.js";
import { boxOf } from "./boxes.js";
import { outboxLine } from "./outbox-line.js";

const percents = { p50: 50, p99: 99 } as const;
const samples = 150;
const pauseMs = [20, 40] as const;
const rival = "graphile-worker";

type Rounds = readonly (readonly number[])[];

/**
 * From commit to the sender's call in an idle system with a notifier, compared with each peer's call of its handler.
 */
export const hintLatency: Benchmark = {
  names: Object.keys(percents).map(nameOf),
  async measure(run) {
    const peers = await run.peers();
    const rounds = await alternate<string, readonly number[]>(run.rounds, {
      ours: () => notified(run),
      ...Object.fromEntries(peers.map((peer) => [peer.name, () => peerLatencies(peer, run)])),
    });
    return Object.entries(percents).flatMap(([label, percent]) => [
      against(nameOf(label), percent, rounds.ours as Rounds, rounds[rival]),
      ...peers.map(({ name }) => absolute(`peer.${name}.latency.${label}`, "ms", at(percent, rounds[name] as Rounds))),
    ]);
  },
};

function against(name: string, percent: number, ours: Rounds, theirs: Rounds | undefined): Figure {
  if (theirs === undefined) return missing(name, `${rival} is not installed`);
  return compared(name, "ms", at(percent, ours), rival, at(percent, theirs));
}

async function notified(run: Run): Promise<readonly number[]> {
  const box = await boxOf(run, "ours");
  return latencies((called) => outboxLine(box, called, { notifies: true }), { samples: run.share(samples), pauseMs });
}

function peerLatencies(peer: Peer, run: Run): Promise<readonly number[]> {
  return latencies((called) => peer.open(called), { samples: run.share(peer.latencySamples), pauseMs });
}

function at(percent: number, rounds: Rounds): readonly number[] {
  return rounds.map((values) => percentile(values, percent));
}

function nameOf(label: string): string {
  return `outbox.latency.${label}.vs-peer`;
}
