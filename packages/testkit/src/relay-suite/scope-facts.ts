import { constant, type Message, type RelayOptions } from "postbox";
import { describe, expect } from "vitest";
import { faultySender } from "../faulty-sender.js";
import { testMessage } from "../messages.js";
import { type RecordingSender, recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox, type StoreHarness } from "../store-suite/store-harness.js";
import { anHourMs, commit, relayOn, whileRunning } from "./relay-run.js";

/** Messages name their destination in a header. */
const to = (scope: string, key: string, ...ids: readonly string[]) =>
  ids.map((id) => testMessage(id, { key, headers: { scope } }));
const scopeOf = ({ headers }: Message) => headers.scope;

export function scopeFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("an unavailable part of the broker", () => {
    for (const keepsOrder of [true, false]) {
      const suffix = keepsOrder ? "" : ", on a sender that does not keep order";

      fact(`holds up nothing else, and is not tried again before its delay${suffix}`, async (harness) => {
        const stage = outage(harness, recordingSender({ keepsOrder }), { backoff: constant(anHourMs) });
        await commit(harness, ...to("p1", "a", "a1"));
        await whileRunning(stage.relay, async () => {
          const { log } = stage.relay;
          await log.until("scope.unavailable");
          await log.until("message.held");
          await commit(harness, ...to("p1", "a", "a2"), ...to("p1", "b", "b1", "b2"), ...to("p2", "c", "c1", "c2"));
          await log.until("message.held", 4);
          await stage.sender.until(2);
        });
        expect(stage.sender.ids()).toEqual(["c1", "c2"]);
        expect(stage.tried).toEqual(["a1"]);
        expect(stage.relay.log.of("scope.unavailable")).toMatchObject([{ scope: "p1", retryInMs: anHourMs }]);
        expect(stage.relay.log.of("message.failed")).toEqual([]);
        expect((await harness.contents("outbox")).wait).toEqual(["a1", "a2", "b1", "b2"]);
      });

      fact(`spends no attempt, and each key continues in order when it is available${suffix}`, async (harness) => {
        const stage = outage(harness, recordingSender({ keepsOrder }), { backoff: constant(20), maxAttempts: 1 });
        await commit(harness, ...to("p1", "a", "a1", "a2", "a3"), ...to("p1", "b", "b1", "b2"), ...to("p2", "c", "c1"));
        await whileRunning(stage.relay, async () => {
          const { log } = stage.relay;
          await log.until("scope.unavailable", 3);
          stage.heal();
          await stage.sender.until(6);
          await log.until("scope.available");
        });
        const ofKey = (key: string) => stage.sender.messages.filter((sent) => sent.key === key).map(({ id }) => id);
        expect([ofKey("a"), ofKey("b")]).toEqual([
          ["a1", "a2", "a3"],
          ["b1", "b2"],
        ]);
        expect(stage.relay.log.of("message.sent").map(({ attempt }) => attempt)).toEqual([1, 1, 1, 1, 1, 1]);
        expect(await harness.contents("outbox")).toEqual(emptyBox);
      });

      fact(`holds back later messages of the same key, even to other destinations${suffix}`, async (harness) => {
        const stage = outage(harness, recordingSender({ keepsOrder }), { backoff: constant(20) });
        await commit(harness, ...to("p1", "other", "x1"));
        await whileRunning(stage.relay, async () => {
          const { log } = stage.relay;
          await log.until("scope.unavailable");
          // In one batch, and with the second one appended later.
          await commit(harness, ...to("p1", "a", "a1"), ...to("p2", "a", "a2"), ...to("p1", "b", "b1"));
          await log.until("message.held", 3);
          await commit(harness, ...to("p2", "b", "b2"), ...to("p2", "c", "c1"));
          await stage.sender.until(1);
          await log.until("scope.unavailable", 4);
          expect(stage.sender.ids()).toEqual(["c1"]);
          stage.heal();
          await stage.sender.until(6);
        });
        const ofKey = (key: string) => stage.sender.messages.filter((sent) => sent.key === key).map(({ id }) => id);
        expect([ofKey("a"), ofKey("b")]).toEqual([
          ["a1", "a2"],
          ["b1", "b2"],
        ]);
      });
    }

    fact("holds up everything in a total order, without an attempt", async (harness) => {
      const stage = outage(harness, recordingSender(), { backoff: constant(20), maxAttempts: 1, order: "total" });
      await commit(harness, ...to("p2", "c", "c1"), ...to("p1", "a", "a1"), ...to("p2", "c", "c2"));
      await whileRunning(stage.relay, async () => {
        const { log } = stage.relay;
        await log.until("scope.unavailable", 3);
        expect(stage.sender.ids()).toEqual(["c1"]);
        stage.heal();
        await stage.sender.until(3);
      });
      expect(stage.sender.ids()).toEqual(["c1", "a1", "c2"]);
    });

    fact("is reported with its error, even if its delay is invalid", async (harness) => {
      const stage = outage(harness, recordingSender(), { backoff: () => Number.NaN });
      await commit(harness, ...to("p1", "a", "a1"));
      await whileRunning(stage.relay, async () => void (await stage.relay.log.until("scope.unavailable")));
      const [told] = stage.relay.log.of("scope.unavailable");
      expect(told).toMatchObject({ scope: "p1", sender: "recording" });
      expect(Number.isFinite(told?.retryInMs)).toBe(true);
    });
  });
}

/**
 * A relay to a broker whose part `p1` is unavailable until `heal()`. `tried` has the messages to it that the sender was
 * given.
 */
function outage<Tx>(harness: StoreHarness<Tx>, sender: RecordingSender, options: RelayOptions) {
  const tried: string[] = [];
  let away = true;
  const plan = ({ id, headers }: Message) => {
    if (!away || headers.scope !== "p1") return undefined;
    tried.push(id);
    return "unavailable" as const;
  };
  const relay = relayOn(harness.store, faultySender(sender, plan, scopeOf), options);
  return {
    sender,
    tried,
    relay,
    heal: () => {
      away = false;
    },
  };
}
