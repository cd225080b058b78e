import { describe, expect, it } from "vitest";
import { defineEvent } from "../event/define-event.js";
import { durableInbox } from "../middleware/durable-inbox.js";
import { inbox } from "../middleware/inbox.js";
import { transaction } from "../middleware/transaction.js";
import { memoryStore } from "../stores/memory/memory-store.js";
import type { Receiver } from "../transport.js";
import { createRouter } from "./create-router.js";

const Placed = defineEvent({
  type: "shop.Placed",
  schema: { "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) } },
});

/** A receiver that delivers nothing and records whether it was called. */
function receiver(abilities: Partial<Receiver>) {
  const asked: string[] = [];
  const made: Receiver = {
    name: "kafka",
    prepare: async () => void asked.push("prepare"),
    receive: async () => void asked.push("receive"),
    ...abilities,
  };
  return { made, asked };
}

const store = memoryStore();
const routers = {
  none: () => createRouter("billing").on(Placed, () => {}),
  inbox: () =>
    createRouter("billing")
      .use(transaction(store))
      .use(inbox(store))
      .on(Placed, () => {}),
  durableInbox: () =>
    createRouter("billing")
      .use(transaction(store))
      .use(durableInbox(store))
      .on(Placed, () => {}),
};

describe("a receiver that needs an inbox beside it", () => {
  it.each<[Partial<Receiver>, keyof typeof routers, string | undefined]>([
    [{}, "none", undefined],
    [{ settles: "each", redelivery: "counted", selects: "topic" }, "none", undefined],
    [{ settles: "in-order" }, "none", "add .use(transaction(store)).use(inbox(store)) before .on(...)"],
    [{ settles: "in-order", setsAside: true }, "none", undefined],
    [{ settles: "in-order" }, "inbox", undefined],
    [{ settles: "in-order" }, "durableInbox", undefined],
    [{ redelivery: "unknown" }, "none", "add .use(transaction(store)).use(durableInbox(store)) before .on(...)"],
    [{ redelivery: "unknown" }, "inbox", "add .use(transaction(store)).use(durableInbox(store)) before .on(...)"],
    [{ settles: "in-order", redelivery: "unknown" }, "durableInbox", undefined],
  ])("%o is refused behind %s: %s", async (abilities, kind, refusal) => {
    const { made, asked } = receiver(abilities);
    const router = routers[kind]();
    const aborted = AbortSignal.abort();
    if (refusal === undefined) {
      await router.prepare(made);
      await router.run(made, aborted);
      expect(asked).toEqual(["prepare", "receive"]);
      return;
    }
    const error = { name: "ConfigError", code: "middleware-order", message: expect.stringContaining(refusal) };
    await expect(router.prepare(made)).rejects.toMatchObject(error);
    await expect(router.run(made, aborted)).rejects.toMatchObject(error);
    expect(() => router.start(made)).toThrow(expect.objectContaining(error));
    expect(asked).toEqual([]);
  });
});
