import { describe, expect } from "vitest";
import { freezeAt } from "../freeze-at.js";
import { gate } from "../gate.js";
import { testMessage } from "../messages.js";
import { recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { commit, relayOn, timing, whileRunning } from "./relay-run.js";

export function takeOverFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("taking over", () => {
    fact("one relay works, another stands by and goes on when it stops, without duplicates", async (harness) => {
      const [first, second] = [recordingSender(), recordingSender()];
      const working = relayOn(harness.store, first);
      const standby = relayOn(harness.another(), second);
      working.start();
      await working.log.until("relay.owned");
      await whileRunning(standby, async () => {
        await commit(harness, testMessage("1"));
        await working.log.until("relay.settled");
        expect(standby.log.of("relay.owned")).toEqual([]);
        await working.stop();
        await commit(harness, testMessage("2"));
        await standby.log.until("relay.settled");
      });
      expect(first.ids()).toEqual(["1"]);
      expect(second.ids()).toEqual(["2"]);
    });

    fact("one that died after sending is replaced when its lease ends: the same ids go out again", async (harness) => {
      const [first, second] = [recordingSender(), recordingSender()];
      const { runtime, reached } = freezeAt("relay.sent");
      await commit(harness, testMessage("1", { key: "k" }), testMessage("2", { key: "k" }));
      relayOn(harness.another(), first, { runtime }).start();
      await reached;
      const heir = relayOn(harness.another(), second);
      await whileRunning(heir, async () => {
        await commit(harness, testMessage("3", { key: "k" }));
        await harness.advance(timing.leaseMs);
        await second.until(3);
        await heir.log.until("relay.settled");
      });
      expect(first.ids()).toEqual(["1", "2"]);
      expect(second.ids()).toEqual(["1", "2", "3"]);
      expect((await harness.contents("outbox")).pending).toEqual([]);
    });

    fact("one that was paused beyond its lease changes nothing when it wakes up", async (harness) => {
      const pause = gate();
      const paused = gate();
      let refuse = true;
      const slow = {
        ...recordingSender(),
        // Refused, so that its settle would hold the key; but the box belongs to somebody else by then.
        async send(...[messages, settled]: Parameters<ReturnType<typeof recordingSender>["send"]>) {
          paused.open();
          await pause.opened;
          messages.forEach((_, index) => {
            if (refuse) settled(index, { status: "failed", error: new Error("refused to the stale one") });
          });
        },
      };
      const stale = relayOn(harness.another(), slow);
      const second = recordingSender();
      const heir = relayOn(harness.another(), second);
      await commit(harness, testMessage("1", { key: "k" }));
      stale.start();
      await paused.opened;
      await whileRunning(heir, async () => {
        await harness.advance(timing.leaseMs);
        await heir.log.until("relay.settled");
        await commit(harness, testMessage("2", { key: "k" }));
        await second.until(2);
        pause.open();
        await stale.log.until("relay.lost");
        refuse = false;
        await commit(harness, testMessage("3", { key: "k" }));
        await second.until(3);
      });
      await stale.stop();
      expect(second.ids()).toEqual(["1", "2", "3"]);
      expect(await harness.contents("outbox")).toEqual({ pending: [], wait: [], holds: [], parked: [], done: [] });
    });
  });
}
