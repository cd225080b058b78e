import { setImmediate as nextTurn } from "node:timers/promises";
import { testMessage } from "@postbox/testkit";
import { expect, it } from "vitest";
import { createRouter, defineEvent, inbox, transaction } from "../exports/index.js";
import { memoryBroker, memoryStore } from "../exports/memory.js";

const anything = { "~standard": { version: 1 as const, vendor: "test", validate: (value: unknown) => ({ value }) } };
const Placed = defineEvent({ type: "shop.Placed", schema: anything });

it("handles messages of the box while the broker delivers without a pause", async () => {
  const store = memoryStore();
  const remember = { retentionMs: 60_000, lockTimeoutMs: 1_000 };
  const aside = { to: "wait", attempts: 1, retryInMs: 0, error: "given back" } as const;
  for (let n = 0; n < 10; n++) {
    const message = testMessage(`box-${n}`, { type: Placed.type, topic: "shop" });
    await store.inbox.setAside({ consumer: "billing", message, id: message.id }, aside, remember);
  }
  const broker = memoryBroker();
  broker.bind("billing", [Placed]);
  const messages = Array.from({ length: 400 }, (_, n) => testMessage(`new-${n}`, { type: Placed.type, topic: "shop" }));
  await broker.sender().send(messages, () => {}, new AbortController().signal);
  const handled: string[] = [];
  const { promise: all, resolve } = withResolver();
  const router = createRouter("billing", { concurrency: 2 })
    .use(transaction(store))
    .use(inbox(store))
    .on(Placed, async (_, { message }) => {
      await nextTurn();
      if (handled.push(message.id) === 410) resolve();
    });
  await router.start(broker.receiver());
  await all;
  await router.stop();
  const last = handled.findLastIndex((id) => id.startsWith("box-"));
  // The first of them has to be read from the box. Then they take turns with what the broker has delivered.
  expect(handled.filter((id) => id.startsWith("box-"))).toHaveLength(10);
  expect(last).toBeLessThan(200);
});

function withResolver() {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
