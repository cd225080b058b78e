import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { comparable, testMessage, testMessages } from "../messages.js";
import { outbox } from "./box-access.js";
import { oneOfEach, operatedBox } from "./operated-box.js";
import type { StoreFact } from "./store-facts.js";

const second = 1000;

/** Messages that are done are kept for a while and then removed, and nothing else is. */
export function retentionFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("purge", () => {
    fact("removes messages after the retention, and no others", async (harness) => {
      const { store, rowByRow } = harness;
      const { finish } = await operatedBox(harness);
      await finish(testMessage("a"), testMessage("b"));
      await harness.advance(100 * second);
      await finish(testMessage("c"));
      const nothing = { busy: false, removed: 0 };
      expect(await store.purge({ ...rowByRow, retentionMs: 200 * second })).toMatchObject(nothing);
      expect(await store.purge({ ...rowByRow, retentionMs: 50 * second })).toMatchObject({ ...nothing, removed: 2 });
      expect((await harness.contents(outbox)).done).toEqual(["c"]);
      expect(await store.purge({ ...rowByRow, retentionMs: 0, box: "inbox/other" })).toMatchObject(nothing);
      expect((await harness.contents(outbox)).done).toEqual(["c"]);
    });

    fact("counts from the time of sending, not of the append", async (harness) => {
      const { settle } = await oneOfEach(harness);
      await harness.advance(100 * second);
      await settle("pending", { to: "sent" }, { keep: true });
      expect(await harness.store.purge({ ...harness.rowByRow, retentionMs: 50 * second })).toMatchObject({
        removed: 1,
      });
      expect((await harness.contents(outbox)).done).toEqual(["pending"]);
    });

    for (const how of ["as it does by itself", "row by row"]) {
      fact(`never removes messages that are not done, however old (${how})`, async (harness) => {
        await oneOfEach(harness);
        await harness.advance(365 * 24 * 3600 * second);
        const before = await harness.contents(outbox);
        expect(before.done).toEqual(["done"]);
        expect(
          await harness.store.purge({ ...(how === "row by row" && harness.rowByRow), retentionMs: 0 }),
        ).toMatchObject({ busy: false, removed: 1 });
        expect(await harness.contents(outbox)).toEqual({ ...before, done: [] });
        const { messages } = await harness.store.admin.list();
        expect(messages.map(({ id }) => id)).toEqual(["pending", "waiting", "scheduled", "parked"]);
      });
    }

    fact("passes everything to the archive before it is removed, in order", async (harness) => {
      const { finish } = await operatedBox(harness);
      const messages = testMessages("m", 1200);
      await finish(...messages);
      await harness.advance(100 * second);
      const archived: { readonly message: object; readonly position: number }[] = [];
      const purged = await harness.store.purge({
        ...harness.rowByRow,
        retentionMs: 0,
        async archive(batch) {
          for (const { message, position, attempts, createdAt, publishedAt } of batch) {
            archived.push({ message: comparable(message), position });
            expect(attempts).toBe(1);
            expect(publishedAt.getTime()).toBeGreaterThanOrEqual(createdAt.getTime());
          }
        },
      });
      expect(purged).toMatchObject({ busy: false, removed: 1200 });
      expect(archived.map(({ message }) => message)).toEqual(messages.map(comparable));
      const positions = archived.map(({ position }) => position);
      expect(positions).toEqual([...positions].sort((a, b) => a - b));
      expect((await harness.contents(outbox)).done).toEqual([]);
    });

    fact("keeps what the archive rejects, and rejects with its error; the next purge tries again", async (harness) => {
      const { store, rowByRow } = harness;
      const { finish } = await operatedBox(harness);
      const messages = testMessages("m", 1200);
      await finish(...messages);
      await harness.advance(100 * second);
      const taken: string[] = [];
      let calls = 0;
      const full = store.purge({
        ...rowByRow,
        retentionMs: 0,
        async archive(batch) {
          if (++calls > 1) throw new Error("the archive is full");
          taken.push(...batch.map(({ message }) => message.id));
        },
      });
      await expect(full).rejects.toThrow("the archive is full");
      expect(taken.length).toBeGreaterThan(0);
      const rest = messages.map(({ id }) => id).slice(taken.length);
      expect((await harness.contents(outbox)).done).toEqual(rest);
      const archive = async (batch: readonly { readonly message: { readonly id: string } }[]) => {
        taken.push(...batch.map(({ message }) => message.id));
      };
      expect(await store.purge({ ...rowByRow, retentionMs: 0, archive })).toMatchObject({ removed: rest.length });
      expect(taken).toEqual(messages.map(({ id }) => id));
    });

    fact("runs one at a time, whichever process calls it", "concurrentTransactions", async (harness) => {
      const { finish } = await operatedBox(harness);
      await finish(testMessage("m"));
      await harness.advance(100 * second);
      const [working, mayEnd] = [gate(), gate()];
      const first = harness.store.purge({
        ...harness.rowByRow,
        retentionMs: 0,
        async archive() {
          working.open();
          await mayEnd.opened;
        },
      });
      await Promise.race([working.opened, first]);
      const busy = { busy: true, removed: 0 };
      try {
        expect(await harness.another().purge({ ...harness.rowByRow, retentionMs: 0 })).toMatchObject(busy);
        expect((await harness.contents(outbox)).done).toEqual(["m"]);
        expect(
          await harness.another().purge({ ...harness.rowByRow, retentionMs: 0, box: "inbox/other" }),
        ).toMatchObject({
          busy: false,
        });
      } finally {
        mayEnd.open();
      }
      expect(await first).toMatchObject({ busy: false, removed: 1 });
      expect(await harness.another().purge({ ...harness.rowByRow, retentionMs: 0 })).toMatchObject({
        busy: false,
        removed: 0,
      });
    });

    fact("does nothing after an abort, and rejects invalid options", async (harness) => {
      const { store, rowByRow } = harness;
      const { finish } = await operatedBox(harness);
      await finish(testMessage("m"));
      await harness.advance(100 * second);
      const signal = AbortSignal.abort();
      expect(await store.purge({ ...rowByRow, retentionMs: 0, signal })).toMatchObject({ busy: false, removed: 0 });
      const before = await harness.fingerprint();
      const wrong = [{}, { retentionMs: -1 }, { retentionMs: "0" }, { retentionMs: 0, box: "no such box" }];
      for (const options of wrong) {
        await expect(store.purge(options as never)).rejects.toMatchObject({ code: "option-invalid" });
      }
      expect(await harness.fingerprint()).toBe(before);
      expect((await harness.contents(outbox)).done).toEqual(["m"]);
    });
  });
}
