import { constant, type RelayOptions } from "postbox";
import { describe, expect } from "vitest";
import { faultySender } from "../faulty-sender.js";
import { testMessage } from "../messages.js";
import { recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { commit, relayOn } from "./relay-run.js";

const operator = { by: "fact" };
const keys = ["a", "b", "c", "d", "e"];
const rounds = 60;
/** Each seed plays other actions at other moments; what a run does in between depends on the relays. */
const seeds = [1, 2, 3];

/** A sequence of numbers below 1 that depends only on its seed. */
function numbers(seed: number): () => number {
  let state = seed * 2_654_435_761;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x297a2d39) >>> 0;
    return state / 0x1_0000_0000;
  };
}

/** Operators act at random while relays send, fail and park. */
export function operatorSoakFacts<Tx>(fact: StoreFact<Tx>): void {
  const modes: readonly RelayOptions[] = [{ onPark: "hold" }, { onPark: "continue" }];
  describe("operators and relays at once", () => {
    for (const mode of modes) {
      for (const seed of seeds) {
        fact(`leave no key held without a reason, ${mode.onPark}, seed ${seed}`, async (harness) => {
          const random = numbers(seed);
          const pick = <T>(of: readonly T[]): T => of[Math.floor(random() * of.length)] as T;
          const sent = recordingSender();
          let heals = false;
          const sender = faultySender(sent, () => {
            if (heals) return undefined;
            const chance = random();
            return chance < 0.25 ? "failed" : chance < 0.35 ? "rejected" : undefined;
          });
          const { admin } = harness.store;
          const options = { ...mode, backoff: constant(2), maxAttempts: 3, onSent: "keep" as const };
          const relays = [relayOn(harness.store, sender, options), relayOn(harness.another(), sender, options)];
          const idsOf = async (status: "parked" | "waiting" | "pending" | "done") =>
            (await admin.list({ status, limit: 20 })).messages.map(({ id }) => id);
          let count = 0;
          const actions: readonly (() => Promise<unknown>)[] = [
            () => commit(harness, ...Array.from({ length: 10 }, () => testMessage(`m${count++}`, { key: pick(keys) }))),
            () => commit(harness, testMessage(`m${count++}`)),
            async () => admin.retry({ ids: await idsOf("parked") }, operator),
            async () => admin.retry({ ids: await idsOf("waiting"), status: "waiting" }, operator),
            async () => admin.retry({ ids: await idsOf("pending"), status: "pending" }, operator),
            async () => admin.discard({ ids: await idsOf("parked") }, operator),
            async () => admin.discard({ ids: await idsOf("waiting"), status: "waiting" }, operator),
            async () => admin.discard({ ids: await idsOf("pending"), status: "pending" }, operator),
            async () => admin.replay({ ids: (await idsOf("done")).slice(0, 3) }, { ...operator, perSecond: 1e9 }),
            () => admin.release(pick(keys), operator),
            async () => {
              await admin.pause(operator);
              await admin.resume(operator);
            },
          ];
          for (const relay of relays) relay.start();
          try {
            for (let round = 0; round < rounds; round++) {
              await Promise.all(Array.from({ length: 3 }, () => pick(actions)()));
            }
            heals = true;
            await expect
              .poll(
                async () => {
                  await admin.discard({ ids: await idsOf("parked") }, operator);
                  const { pending, waiting, parked } = await admin.stats();
                  return pending.count + waiting.count + parked.count;
                },
                { timeout: 50_000 },
              )
              .toBe(0);
          } finally {
            for (const relay of relays) await relay.stop();
          }
          expect((await harness.contents("outbox")).holds).toEqual([]);
        });
      }
    }
  });
}
