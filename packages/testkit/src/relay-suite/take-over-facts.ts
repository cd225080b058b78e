import { laneCount } from "postbox/store";
import { describe, expect } from "vitest";
import { freezeAt } from "../freeze-at.js";
import { gate } from "../gate.js";
import { testMessage } from "../messages.js";
import { recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox } from "../store-suite/store-harness.js";
import { commit, relayOn, timing, whileRunning } from "./relay-run.js";

export function takeOverFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("taking over", () => {
    fact("relays share the lanes, send each message once and in order, and take over all lanes", async (harness) => {
      const sent: string[] = [];
      const sender = () => recordingSender({ before: (batch) => void sent.push(...batch.map(({ id }) => id)) });
      const [first, second] = [relayOn(harness.store, sender()), relayOn(harness.another(), sender())];
      let count = 0;
      const publish = async (howMany: number) => {
        const messages = Array.from({ length: howMany }, () => testMessage(`${++count}`, { key: `k${count % 20}` }));
        await commit(harness, ...messages);
      };
      first.start();
      await first.log.until("relay.owned");
      await publish(50);
      second.start();
      await second.log.until("relay.owned");
      await publish(50);
      await harness.advance(0);
      const owned = ({ log }: typeof first) =>
        log.events.reduce((sum, event) => {
          if (event.name === "relay.owned") return sum + event.lanes;
          return event.name === "relay.released" || event.name === "relay.lost" ? sum - event.lanes : sum;
        }, 0);
      await second.log.until(() => owned(second) === laneCount / 2, "half of the lanes");
      expect(owned(first)).toBe(laneCount / 2);
      await publish(50);
      await first.stop();
      await second.log.until(() => owned(second) === laneCount, "all of the lanes");
      await publish(50);
      await second.log.until("relay.drained");
      await second.log.until(() => sent.length >= count, "everything sent");
      await second.stop();
      expect(sent).toHaveLength(count);
      for (let key = 0; key < 20; key++) {
        const ofKey = sent.map(Number).filter((n) => n % 20 === key);
        expect(ofKey).toEqual([...ofKey].sort((a, b) => a - b));
      }
      expect((await harness.contents("outbox")).pending).toEqual([]);
    });

    fact("after a crash between send and settle, the next owner sends the same ids again", async (harness) => {
      const [first, second] = [recordingSender(), recordingSender()];
      const { runtime, reached } = freezeAt("relay.sent");
      await commit(harness, testMessage("1", { key: "k" }), testMessage("2", { key: "k" }));
      relayOn(harness.another(), first, { runtime }).start();
      await reached;
      await commit(harness, testMessage("3", { key: "k" }));
      await harness.advance(timing.leaseMs);
      const heir = relayOn(harness.another(), second);
      await whileRunning(heir, async () => {
        await second.until(3);
        await heir.log.until("relay.settled");
      });
      expect(first.ids()).toEqual(["1", "2"]);
      expect(second.ids()).toEqual(["1", "2", "3"]);
      expect((await harness.contents("outbox")).pending).toEqual([]);
    });

    fact("a relay that was frozen beyond its lease changes nothing when it continues", async (harness) => {
      const pause = gate();
      const paused = gate();
      let refuse = true;
      const slow = {
        ...recordingSender(),
        // The message is refused, so its settle would hold the key; but another relay owns the box by then.
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
      await harness.advance(timing.leaseMs);
      await whileRunning(heir, async () => {
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
      expect(await harness.contents("outbox")).toEqual(emptyBox);
    });
  });
}
