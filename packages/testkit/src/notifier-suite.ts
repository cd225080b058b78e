import type { Notifier } from "postbox";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Gate, gate } from "./gate.js";
import { patiently } from "./patience.js";

/** A notifier under test. */
export interface NotifierHarness {
  readonly notifier: Notifier;
  /**
   * Another notifier that gets the same notifications, as in another process; the same object if it works in one
   * process only.
   */
  readonly another: Notifier;
  close(): Promise<void>;
}

/** Options of `notifierSuite`. */
export interface NotifierSuiteOptions {
  readonly name: string;
  /** Called for every fact. */
  create(): Promise<NotifierHarness>;
}

/**
 * Proves that a notifier keeps the contract of `Notifier`. Call it from a Vitest file.
 *
 * @example
 * ```ts
 * notifierSuite({ name: "mine", create: async () => notifierHarness });
 * ```
 */
export function notifierSuite({ name, create }: NotifierSuiteOptions): void {
  describe(`${name} as a notifier`, () => {
    let harness: NotifierHarness;
    beforeEach(async () => {
      harness = await create();
    });
    afterEach(() => harness.close());

    it("notifies all listeners, in every process", async () => {
      const ears = [await listenTo(harness.notifier), await listenTo(harness.another)];
      await harness.notifier.notify("outbox");
      for (const ear of ears) await ear.heard("a notification");
      for (const ear of ears) await ear.close();
    });

    it("keeps boxes apart", async () => {
      const [outbox, inbox] = [await listenTo(harness.notifier), await listenTo(harness.notifier, "inbox/other")];
      await harness.another.notify("outbox");
      await outbox.heard("the outbox's");
      expect(inbox.count).toBe(0);
      await harness.another.notify("inbox/other");
      await inbox.heard("the inbox's");
      for (const ear of [outbox, inbox]) await ear.close();
    });

    it("does not notify a listener whose signal was aborted", async () => {
      const [gone, ear] = [await listenTo(harness.notifier), await listenTo(harness.notifier)];
      await gone.close();
      await harness.another.notify("outbox");
      await ear.heard("a notification");
      expect(gone.count).toBe(0);
      await ear.close();
    });

    it("coalesces many calls into few notifications, with at least one after the last call", async () => {
      const ear = await listenTo(harness.notifier);
      await Promise.all(Array.from({ length: 1000 }, () => harness.notifier.notify("outbox")));
      await ear.heard("the first");
      expect(ear.count).toBeLessThan(100);
      const before = ear.count;
      await harness.notifier.notify("outbox");
      await ear.more(before);
      await ear.close();
    });

    it("may notify without a listener", async () => {
      await harness.notifier.notify("outbox");
    });
  });
}

/** Resolves when it is listening. */
async function listenTo(notifier: Notifier, box = "outbox") {
  const [begun, stop] = [gate(), new AbortController()];
  let count = 0;
  let next: Gate = gate();
  const listener = {
    listening: () => begun.open(),
    notified() {
      count++;
      next.open();
      next = gate();
    },
  };
  const listening = notifier.listen(box, listener, stop.signal);
  await patiently(Promise.race([begun.opened, listening]), () => `listening to ${box}`);
  const more = async (than: number): Promise<void> => {
    while (count <= than) await patiently(next.opened, () => "another notification");
  };
  return {
    get count() {
      return count;
    },
    more,
    heard: (what: string) => patiently(more(0), () => what),
    async close() {
      stop.abort();
      await patiently(listening, () => "the end of listening");
    },
  };
}
