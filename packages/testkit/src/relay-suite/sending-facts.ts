import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { comparable, testMessage, testMessages } from "../messages.js";
import { recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox } from "../store-suite/store-harness.js";
import { commit, relayOn, whileRunning } from "./relay-run.js";

export function sendingFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("sending", () => {
    fact("sends committed messages, unchanged and once, and leaves nothing behind", async (harness) => {
      const sender = recordingSender();
      const messages = testMessages("m", 40, { headers: { a: "b" }, extensions: { retries: 3 } });
      await commit(harness, ...messages);
      const relay = relayOn(harness.store, sender);
      await whileRunning(relay, async () => void (await relay.log.until("relay.settled")));
      const byId = (a: object, b: object) => JSON.stringify(a).localeCompare(JSON.stringify(b));
      expect(sender.messages.map(comparable).sort(byId)).toEqual(messages.map(comparable).sort(byId));
      expect(await harness.contents("outbox")).toEqual(emptyBox);
    });

    for (const order of ["key", "total", "none"] as const) {
      fact(
        `reads no more bytes than it may have in flight while the sender accepts nothing (${order})`,
        async (harness) => {
          const open = gate();
          const sender = recordingSender({ keepsOrder: false, before: () => open.opened });
          const large = Array.from({ length: 60 }, (_, n) =>
            testMessage(`${n}`, { key: `${n}`, data: new Uint8Array(100_000) }),
          );
          for (let n = 0; n < 60; n += 10) await commit(harness, ...large.slice(n, n + 10));
          const relay = relayOn(harness.store, sender, { order, maxInFlightBytes: 500_000, publishTimeoutMs: 900 });
          const read = () => relay.log.of("relay.read").reduce((sum, { count }) => sum + count, 0);
          await whileRunning(relay, async () => {
            await relay.log.until("breaker.opened");
            // Five in flight, and as many buffered, each with the one that reaches the limit.
            expect(read()).toBeLessThanOrEqual(20);
            open.open();
            await relay.log.until("message.sent", 60);
          });
          expect(new Set(sender.ids()).size).toBe(60);
          expect(await harness.contents("outbox")).toEqual(emptyBox);
        },
      );
    }

    fact("keeps sent messages if asked to", async (harness) => {
      await commit(harness, testMessage("1"), testMessage("2"));
      const relay = relayOn(harness.store, recordingSender(), { onSent: "keep" });
      await whileRunning(relay, async () => void (await relay.log.until("relay.settled")));
      expect(await harness.contents("outbox")).toEqual({ ...emptyBox, done: ["1", "2"] });
    });

    fact("never sends messages that were rolled back", async (harness) => {
      const sender = recordingSender();
      const refused = harness.store.transaction(async (tx) => {
        await harness.store.append(tx, "outbox", [testMessage("ghost")]);
        throw new Error("no");
      });
      await expect(refused).rejects.toThrow("no");
      await commit(harness, testMessage("real"));
      const relay = relayOn(harness.store, sender);
      await whileRunning(relay, async () => void (await relay.log.until("relay.drained")));
      expect(sender.ids()).toEqual(["real"]);
    });

    fact("keeps the order of every key, over many batches", async (harness) => {
      const sender = recordingSender();
      const messages = Array.from({ length: 300 }, (_, n) => testMessage(`${n}`, { key: `k${n % 7}` }));
      for (let at = 0; at < messages.length; at += 50) await commit(harness, ...messages.slice(at, at + 50));
      const relay = relayOn(harness.store, sender, { batchSize: 64 });
      await whileRunning(relay, () => sender.until(300));
      for (let k = 0; k < 7; k++) {
        const ofKey = sender.messages.filter(({ key }) => key === `k${k}`).map(({ id }) => Number(id));
        expect(ofKey).toEqual([...ofKey].sort((a, b) => a - b));
      }
      expect(new Set(sender.ids()).size).toBe(300);
    });

    fact("finds a message that commits after a later one was sent", "lateCommits", async (harness) => {
      const sender = recordingSender();
      const relay = relayOn(harness.store, sender);
      const [appended, mayCommit] = [gate(), gate()];
      const slow = harness.store.transaction(async (tx) => {
        await harness.store.append(tx, "outbox", [testMessage("early", { key: "k" })]);
        appended.open();
        await mayCommit.opened;
      });
      await appended.opened;
      // With the same key, and so in a lane that has been read past the earlier one.
      await commit(harness, testMessage("late", { key: "k" }));
      await whileRunning(relay, async () => {
        await relay.log.until("relay.settled");
        expect(sender.ids()).toEqual(["late"]);
        mayCommit.open();
        await slow;
        await relay.log.until("relay.settled", 2);
      });
      expect(sender.ids()).toEqual(["late", "early"]);
      expect(relay.log.of("message.late").map(({ id }) => id)).toEqual(["early"]);
    });

    for (const strictKeyOrder of [false, true]) {
      const how = strictKeyOrder ? ", with strictKeyOrder" : "";
      const name = `a late commit is still sent before messages that were appended after it${how}`;
      fact(name, "concurrentTransactions", async (harness) => {
        const sender = recordingSender();
        const relay = relayOn(harness.store, sender);
        const [appended, mayCommit] = [gate(), gate()];
        const append = (id: string, key: string, ended: Promise<unknown> = Promise.resolve()) =>
          harness.store.transaction(async (tx) => {
            await harness.store.append(tx, "outbox", [testMessage(id, { key })], { strictKeyOrder });
            appended.open();
            await ended;
          });
        const slow = append("first", "k", mayCommit.opened);
        await appended.opened;
        await whileRunning(relay, async () => {
          // More keys than there are lanes: at least one of them takes the lane beyond the first message.
          const others = Array.from({ length: 300 }, (_, n) => testMessage(`other-${n}`, { key: `other-${n}` }));
          await commit(harness, ...others);
          await relay.log.until("message.sent", others.length);
          mayCommit.open();
          await slow;
          await append("second", "k");
          await relay.log.until("message.sent", others.length + 2);
        });
        expect(sender.ids().slice(-2)).toEqual(["first", "second"]);
      });
    }

    fact("has one message of a key in flight if the sender does not keep order", async (harness) => {
      const onTheWay = new Map<string, number>();
      let most = 0;
      const sender = recordingSender({
        keepsOrder: false,
        before(batch) {
          onTheWay.clear();
          for (const { key } of batch) onTheWay.set(key as string, (onTheWay.get(key as string) ?? 0) + 1);
          most = Math.max(most, ...onTheWay.values());
        },
      });
      await commit(harness, ...Array.from({ length: 12 }, (_, n) => testMessage(`${n}`, { key: `k${n % 3}` })));
      const relay = relayOn(harness.store, sender);
      await whileRunning(relay, () => sender.until(12));
      expect(most).toBe(1);
      for (let k = 0; k < 3; k++) {
        const ofKey = sender.messages.filter(({ key }) => key === `k${k}`).map(({ id }) => Number(id));
        expect(ofKey).toEqual([k, k + 3, k + 6, k + 9]);
      }
    });
  });
}
