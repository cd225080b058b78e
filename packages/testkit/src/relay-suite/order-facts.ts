import { constant } from "postbox";
import { laneCount } from "postbox/store";
import { describe, expect } from "vitest";
import { faultySender } from "../faulty-sender.js";
import { gate } from "../gate.js";
import { testMessage } from "../messages.js";
import { recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox } from "../store-suite/store-harness.js";
import { anHourMs, commit, relayOn, timing, whileRunning } from "./relay-run.js";

const total = { order: "total", backoff: constant(1) } as const;

export function orderFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("a total order", () => {
    fact("sends everything in the order of its appends, one at a time", async (harness) => {
      const batches: number[] = [];
      const sender = recordingSender({ before: (batch) => void batches.push(batch.length) });
      const ids = Array.from({ length: 150 }, (_, n) => `${n}`);
      const messages = ids.map((id, n) => testMessage(id, n % 3 === 0 ? {} : { key: `k${n % 7}` }));
      for (let at = 0; at < 150; at += 50) await commit(harness, ...messages.slice(at, at + 50));
      const relay = relayOn(harness.store, sender, total);
      await whileRunning(relay, () => sender.until(150));
      expect(sender.ids()).toEqual(ids);
      expect(new Set(batches)).toEqual(new Set([1]));
      expect(await harness.contents("outbox")).toEqual(emptyBox);
    });

    for (const end of ["commits", "rolls back"] as const) {
      const what = `waits for a transaction that has an earlier position, until it ${end}`;
      fact(what, "lateCommits", async (harness) => {
        const sender = recordingSender();
        const relay = relayOn(harness.store, sender, total);
        const [appended, mayEnd] = [gate(), gate()];
        const slow = harness.store.transaction(async (tx) => {
          await harness.store.append(tx, "outbox", [testMessage("early", { key: "a" })]);
          appended.open();
          await mayEnd.opened;
          if (end === "rolls back") throw new Error("after all not");
        });
        slow.catch(() => {});
        await appended.opened;
        await commit(harness, testMessage("late", { key: "b" }));
        await whileRunning(relay, async () => {
          await relay.log.until("relay.blocked");
          await commit(harness, testMessage("later", { key: "c" }));
          expect(sender.ids()).toEqual([]);
          mayEnd.open();
          await slow.catch(() => {});
          await sender.until(end === "commits" ? 3 : 2);
        });
        expect(sender.ids()).toEqual([...(end === "commits" ? ["early"] : []), "late", "later"]);
        expect(relay.log.of("message.late")).toEqual([]);
      });
    }

    fact("a failed message keeps its place, and all others wait for it", async (harness) => {
      const inner = recordingSender();
      let refusals = 2;
      const sender = faultySender(inner, ({ id }) => (id === "2" && refusals-- > 0 ? "failed" : undefined));
      await commit(harness, ...["1", "2", "3"].map((id) => testMessage(id, { key: `k${id}` })));
      const relay = relayOn(harness.store, sender, total);
      await whileRunning(relay, () => inner.until(3));
      expect(inner.ids()).toEqual(["1", "2", "3"]);
      expect(relay.log.of("message.failed").map(({ id, attempt }) => [id, attempt])).toEqual([
        ["2", 1],
        ["2", 2],
      ]);
    });

    fact("counts the attempts of a failing message, and continues when it is parked", async (harness) => {
      const inner = recordingSender();
      const sender = faultySender(inner, ({ id }) => (id === "1" ? "failed" : undefined));
      await commit(harness, testMessage("1"), testMessage("2"));
      const first = relayOn(harness.store, sender, { ...total, maxAttempts: 3, backoff: constant(anHourMs) });
      await whileRunning(first, async () => void (await first.log.until("message.failed")));
      expect(await harness.contents("outbox")).toEqual({ ...emptyBox, pending: ["1", "2"] });
      const second = relayOn(harness.another(), sender, { ...total, maxAttempts: 3 });
      await whileRunning(second, () => inner.until(1));
      expect(inner.ids()).toEqual(["2"]);
      expect(second.log.of("message.failed").map(({ attempt }) => attempt)).toEqual([2]);
      expect((await harness.contents("outbox")).parked).toHaveLength(1);
    });

    fact("has one working relay; another one stands by, and takes over", async (harness) => {
      const sent: string[] = [];
      const sender = () => recordingSender({ before: (batch) => void sent.push(...batch.map(({ id }) => id)) });
      const [first, second] = [relayOn(harness.store, sender(), total), relayOn(harness.another(), sender(), total)];
      first.start();
      expect(await first.log.until("relay.owned")).toMatchObject({ lanes: laneCount });
      await whileRunning(second, async () => {
        await commit(harness, ...["1", "2", "3"].map((id) => testMessage(id, { key: id })));
        await first.log.until("message.sent", 3);
        expect(second.log.of("relay.owned")).toEqual([]);
        await first.stop();
        expect(await second.log.until("relay.owned")).toMatchObject({ lanes: laneCount });
        await commit(harness, ...["4", "5"].map((id) => testMessage(id, { key: id })));
        await second.log.until("message.sent", 2);
      });
      expect(sent).toEqual(["1", "2", "3", "4", "5"]);
    });
  });

  describe("no order", () => {
    fact("a failed message waits alone, and its key continues", async (harness) => {
      const inner = recordingSender({ keepsOrder: false });
      let refusals = 1;
      const sender = faultySender(inner, ({ id }) => (id === "a1" && refusals-- > 0 ? "failed" : undefined));
      await commit(harness, ...["a1", "a2", "a3"].map((id) => testMessage(id, { key: "a" })));
      const relay = relayOn(harness.store, sender, { order: "none", backoff: constant(anHourMs) });
      await whileRunning(relay, async () => {
        await inner.until(2);
        await relay.log.until("message.failed");
        await commit(harness, testMessage("a4", { key: "a" }));
        await inner.until(3);
        expect([...inner.ids()].sort()).toEqual(["a2", "a3", "a4"]);
        await relay.log.until("message.sent", 3);
        expect(await harness.contents("outbox")).toEqual({ ...emptyBox, wait: ["a1"], holds: ["a1"] });
        await harness.advance(anHourMs);
        await inner.until(4);
      });
      expect(await harness.contents("outbox")).toEqual(emptyBox);
    });
  });

  fact("a relay with another order than a running one rejects", async (harness) => {
    const first = relayOn(harness.store, recordingSender());
    await whileRunning(first, async () => {
      await first.log.until("relay.owned");
      const second = relayOn(harness.another(), recordingSender(), { ...timing, order: "total" });
      await expect(second.run()).rejects.toMatchObject({
        code: "option-invalid",
        path: "order",
      });
    });
  });
}
