import { constant, type Message, type Sender } from "postbox";
import type { Failpoint } from "postbox/store";
import { describe, expect } from "vitest";
import { faultySender } from "../faulty-sender.js";
import { freezeAt } from "../freeze-at.js";
import { manualRuntime } from "../manual-runtime.js";
import { testMessage } from "../messages.js";
import { patiently } from "../patience.js";
import { recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox, type StoreHarness } from "../store-suite/store-harness.js";
import { commit, type RelayRun, relayOn, timing } from "./relay-run.js";

const keys = 200;
const perKey = 3;
const deadly: readonly Failpoint[] = ["relay.owned", "relay.read", "relay.sent", "relay.settled"];

/**
 * Runs many relays at once on a sender that fails at random; some of them crash at random places. The seed is in the
 * title.
 */
export function chaosFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("everything at once", () => {
    for (const [seed, keepsOrder] of [
      [1, true],
      [2, false],
    ] as const) {
      const name = `crashing relays and failing messages, seed ${seed}: nothing lost, every key in order`;
      fact(name, "processes", async (harness) => {
        const { delivered, deaths } = await chaos(harness, seed, keepsOrder);
        expect(deaths).toBeGreaterThan(0);
        for (let key = 0; key < keys; key++) {
          const firsts = [...new Set(delivered.filter((message) => message.key === `k${key}`).map(({ id }) => id))];
          expect(firsts).toEqual(Array.from({ length: perKey }, (_, n) => `k${key}-${n}`));
        }
        expect(await harness.contents("outbox")).toEqual(emptyBox);
      });
    }
  });
}

async function chaos<Tx>(
  harness: StoreHarness<Tx>,
  seed: number,
  keepsOrder: boolean,
): Promise<{ readonly delivered: readonly Message[]; readonly deaths: number }> {
  let deaths = 0;
  const { random } = manualRuntime({ seed });
  const sink = recordingSender({ keepsOrder });
  const sender: Sender = faultySender(sink, () => (random() < 0.05 ? "failed" : undefined));
  const living = new Map<RelayRun, () => Promise<void>>();

  const start = async (mortal: boolean): Promise<void> => {
    const process = await harness.process?.();
    if (process === undefined) throw new Error("the feature 'processes' needs harness.process()");
    // The first relay crashes for certain; the others may never reach the failpoint.
    const isFirst = living.size === 0;
    const failpoint = isFirst ? "relay.sent" : (deadly[Math.floor(random() * deadly.length)] as Failpoint);
    // Not at once: a message that is in flight in one crash after the other counts as their cause, and is parked.
    const times = isFirst || failpoint === "relay.owned" ? 1 : 5 + Math.floor(random() * 10);
    const { runtime, reached } = freezeAt(failpoint, { times });
    const options = { maxAttempts: 1000, batchSize: 16, backoff: constant(5), ...(mortal ? { runtime } : {}) };
    const relay = relayOn(process.store, sender, options);
    relay.start();
    living.set(relay, process.kill);
    if (isFirst) await relay.log.until("relay.owned");
    if (!mortal) return;
    void reached.then(async () => {
      deaths++;
      living.delete(relay);
      await process.kill();
      // All leases expire, of crashed and running relays: lanes change hands while rows are in flight.
      await harness.advance(timing.leaseMs);
    });
  };

  const everything = keys * perKey;
  const allThere = async () => {
    for (let left = 1; left > 0; await new Promise((resolve) => setTimeout(resolve, 20))) {
      const { pending, wait } = await harness.contents("outbox");
      left = pending.length + wait.length;
    }
  };
  try {
    for (let mortals = 0; mortals < 3; mortals++) await start(true);
    for (let n = 0; n < perKey; n++) {
      await commit(
        harness,
        ...Array.from({ length: keys }, (_, key) => testMessage(`k${key}-${n}`, { key: `k${key}` })),
      );
      if (n === 2) for (let survivors = 0; survivors < 5; survivors++) await start(false);
    }
    await patiently(allThere(), () => `${everything} messages; sent were ${new Set(sink.ids()).size}`);
  } finally {
    for (const [relay, kill] of living) {
      await relay.stop();
      await kill();
    }
  }
  return { delivered: sink.messages, deaths };
}
