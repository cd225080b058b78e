import { notifierSuite } from "@postbox/testkit/suites";
import { expect, it } from "vitest";
import { defaultNotifier, inProcessNotifier } from "./notifier.js";

notifierSuite({
  name: "in-process",
  async create() {
    const notifier = inProcessNotifier();
    return { notifier, another: notifier, async close() {} };
  },
});

it("knows whether anyone listens, so that appends need not notify", async () => {
  const notifier = inProcessNotifier();
  const stop = new AbortController();
  expect(notifier.isHeard?.("outbox")).toBe(false);
  const listening = notifier.listen("outbox", { listening() {}, notified() {} }, stop.signal);
  expect([notifier.isHeard?.("outbox"), notifier.isHeard?.("inbox/other")]).toEqual([true, false]);
  stop.abort();
  await listening;
  expect(notifier.isHeard?.("outbox")).toBe(false);
});

it("allocates nothing per notification, since each publish sends one", async () => {
  const notifier = inProcessNotifier();
  const stop = new AbortController();
  const listening = notifier.listen("outbox", { listening() {}, notified() {} }, stop.signal);
  expect(notifier.notify("outbox")).toBe(notifier.notify("outbox"));
  expect(notifier.notify("another box")).toBe(notifier.notify("outbox"));
  stop.abort();
  await listening;
});

it("is one for each store object by default", () => {
  const [one, other] = [{}, {}];
  expect(defaultNotifier(one)).toBe(defaultNotifier(one));
  expect(defaultNotifier(one)).not.toBe(defaultNotifier(other));
});
