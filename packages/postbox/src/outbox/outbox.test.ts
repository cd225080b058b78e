import { gate, settlesWithin, telemetryLog } from "@postbox/testkit";
import { createOutbox, defineEvent } from "postbox";
import { memoryStore } from "postbox/memory";
import { expect, it } from "vitest";
import { z } from "zod";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }) });

it("stores what is published in the transaction, and tells how much", async () => {
  const store = memoryStore();
  const log = telemetryLog();
  const outbox = createOutbox(store, { source: "/orders", telemetry: log.telemetry });
  const ids = await store.transaction(async (tx) => {
    const publisher = outbox.in(tx);
    const one = await publisher.publish(Placed, { n: 1 });
    const many = await publisher.publishAll([Placed.message({ n: 2 }), Placed.message({ n: 3 })]);
    const raw = await publisher.send({ type: "raw.Bytes", data: Uint8Array.of(1) });
    expect(await publisher.publishAll([])).toEqual([]);
    return [one, ...many, raw].map(({ id }) => id);
  });
  expect(store.contents("outbox").pending.map(({ id }) => id)).toEqual(ids);
  expect(log.of("outbox.appended").map(({ count }) => count)).toEqual([1, 2, 1]);
});

it("refuses bad data before it touches the transaction", async () => {
  const store = memoryStore();
  const outbox = createOutbox(store, { source: "/orders" });
  await store.transaction(async (tx) => {
    await expect(outbox.in(tx).publish(Placed, { n: "1" } as never)).rejects.toMatchObject({ code: "data-invalid" });
    await outbox.in(tx).publish(Placed, { n: 2 });
  });
  expect(store.contents("outbox").pending).toHaveLength(1);
});

it("refuses a transaction that has ended, or none at all", async () => {
  const store = memoryStore();
  const outbox = createOutbox(store, { source: "/orders" });
  const ended = await store.transaction(async (tx) => tx);
  const notATransaction = { code: "not-a-transaction" };
  await expect(outbox.in(ended).publish(Placed, { n: 1 })).rejects.toMatchObject(notATransaction);
  await expect(outbox.in(undefined as never).publish(Placed, { n: 1 })).rejects.toMatchObject(notATransaction);
});

it("refuses options it does not know", () => {
  expect(() => createOutbox(memoryStore(), { source: "/a", telemetri: () => {} } as never)).toThrow(
    "createOutbox: unknown option 'telemetri'; did you mean 'telemetry'?",
  );
});

it("lets publishes to a key take turns where it is asked to", async () => {
  const store = memoryStore();
  const keyed = { key: "k" };
  for (const strictKeyOrder of [true, false]) {
    const outbox = createOutbox(store, { source: "/orders", strictKeyOrder });
    const [published, go] = [gate(), gate()];
    const first = store.transaction(async (tx) => {
      await outbox.in(tx).publish(Placed, { n: 1 }, keyed);
      published.open();
      await go.opened;
    });
    await published.opened;
    const second = store.transaction((tx) => outbox.in(tx).publish(Placed, { n: 2 }, keyed));
    expect(await settlesWithin(second, 20)).toBe(!strictKeyOrder);
    go.open();
    await Promise.all([first, second]);
  }
});
