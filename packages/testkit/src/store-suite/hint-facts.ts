import type { Hints } from "postbox";
import { describe, expect } from "vitest";
import { type Gate, gate, settlesWithin } from "../gate.js";
import { testMessage } from "../messages.js";
import { patiently } from "../patience.js";
import { outbox } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreHarness } from "./store-harness.js";

/** Hints: a relay hears of what was committed. They may be too many or too early, but after a commit there is one. */
export function hintFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("hints", () => {
    fact("are heard after a commit, by all who listen, in whatever process", "hints", async (harness) => {
      const ears = [await listenTo(harness.store), await listenTo(harness.another())];
      await appendAndHint(harness);
      await Promise.all(ears.map((ear) => ear.heard("a hint")));
      await Promise.all(ears.map((ear) => ear.close()));
    });

    fact("are not heard of what was rolled back in the store's own transaction", "hints", async (harness) => {
      const ear = await listenTo(harness.store);
      const failing = appendAndHint(harness, async () => {
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect(await settlesWithin(ear.heard("nothing"), 50)).toBe(false);
      await ear.close();
    });

    fact("wait for the commit of the store's own transaction", "hints", async (harness) => {
      const ear = await listenTo(harness.store);
      await appendAndHint(harness, async () => {
        expect(await settlesWithin(ear.heard("nothing yet"), 50)).toBe(false);
      });
      await ear.heard("a hint");
      await ear.close();
    });

    fact("of one box are not heard in another", "hints", async (harness) => {
      const [other, ear] = [await listenTo(harness.store, "inbox/other"), await listenTo(harness.store)];
      await appendAndHint(harness);
      await ear.heard("a hint");
      expect(await settlesWithin(other.heard("nothing"), 20)).toBe(false);
      await Promise.all([other.close(), ear.close()]);
    });

    fact("are heard no more when the signal is aborted", "hints", async (harness) => {
      const [gone, ear] = [await listenTo(harness.store), await listenTo(harness.store)];
      await gone.close();
      await appendAndHint(harness);
      await ear.heard("a hint");
      expect(await settlesWithin(gone.heard("nothing"), 20)).toBe(false);
      await ear.close();
    });
  });
}

function hintsOf<Tx>(store: StoreHarness<Tx>["store"]): Hints<Tx> {
  if (store.hints === undefined) throw new Error(`${store.name} claims hints, and has none`);
  return store.hints;
}

async function appendAndHint<Tx>({ store }: StoreHarness<Tx>, before = async () => {}): Promise<void> {
  const hints = hintsOf(store).sender(outbox, (error) => {
    throw error;
  });
  await store.transaction(async (tx) => {
    await store.append(tx, outbox, [testMessage("m1")]);
    hints.send(tx);
    await before();
  });
}

/** Listens already when it resolves. */
async function listenTo<Tx>(store: StoreHarness<Tx>["store"], box = outbox) {
  const [begun, hint]: [Gate, Gate] = [gate(), gate()];
  const stop = new AbortController();
  const listener = { listening: () => begun.open(), hinted: () => hint.open() };
  const listening = hintsOf(store).listen(box, listener, stop.signal);
  await patiently(Promise.race([begun.opened, listening]), () => `listening to ${box}`);
  return {
    heard: (what: string) => patiently(hint.opened, () => what),
    async close() {
      stop.abort();
      await patiently(listening, () => "the end of listening");
    },
  };
}
