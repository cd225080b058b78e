import { absolute, compared, type Figure, missing } from "../figure.js";
import type { Benchmark, Run } from "../part.js";
import type { Peer } from "../peers/peer.js";
import { alternate } from "../rounds.js";
import { median } from "../statistics.js";
import { boxOf } from "./boxes.js";
import { drainByHand } from "./by-hand.js";
import { fillAndDrain } from "./drain-box.js";

const rows = 100_000;
const unit = "rows/s";

/** One relay with a sender that does nothing, the bare loop, and every peer, all in the same rounds. */
export const drain: Benchmark = {
  names: ["outbox.drain.vs-bare", "outbox.drain.vs-peers"],
  async measure(run) {
    const count = run.share(rows);
    const ours = await boxOf(run, "ours");
    const bare = await boxOf(run, "bare");
    const peers = await run.peers();
    const rates = await alternate<string, number>(run.rounds, {
      ours: async () => count / (await fillAndDrain(ours, count)).seconds,
      bare: async () => {
        await bare.empty();
        await bare.fill(count);
        return count / (await drainByHand(bare, count));
      },
      ...Object.fromEntries(peers.map((peer) => [peer.name, () => peerRate(peer, run)])),
    });
    const of = (side: string) => rates[side] as readonly number[];
    return [
      compared("outbox.drain.vs-bare", unit, of("ours"), "SELECT + DELETE by hand", of("bare")),
      fastest(of("ours"), peers, of),
      ...peers.map(({ name }) => absolute(`peer.${name}.drain`, unit, of(name))),
    ];
  },
};

function fastest(
  ours: readonly number[],
  peers: readonly Peer[],
  ratesOf: (name: string) => readonly number[],
): Figure {
  const name = "outbox.drain.vs-peers";
  const [best] = peers.toSorted((a, b) => median(ratesOf(b.name)) - median(ratesOf(a.name)));
  if (best === undefined) return missing(name, "the peers are not installed");
  return compared(name, unit, ours, `${best.name} ${best.version}`, ratesOf(best.name));
}

async function peerRate(peer: Peer, run: Run): Promise<number> {
  const count = run.share(peer.drainRows);
  await peer.fill(count);
  return count / (await peer.drain(count));
}
