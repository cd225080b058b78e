import fc from "fast-check";
import type { Store } from "postbox";
import type { Row, Settlement } from "postbox/store";
import { describe, expect } from "vitest";
import { memoryStoreHarness } from "../memory-store-harness.js";
import { testMessage } from "../messages.js";
import { commit, join, outbox, readAll, type What } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreHarness } from "./store-harness.js";

/** A step in the history of a box. Each `of` picks rows from all that were read so far, even long ago. */
type Step =
  | { readonly step: "append"; readonly keys: readonly (string | undefined)[] }
  | {
      readonly step: "settle";
      readonly of: readonly number[];
      readonly whats: readonly What[];
      readonly alone: boolean;
    }
  | {
      readonly step: "change";
      readonly action: "retry" | "discard";
      readonly status: "waiting" | "parked";
      readonly of: number;
    }
  | { readonly step: "release"; readonly key: string };

const inAnHour = 3_600_000;
const keys = ["a", "b"] as const;
const some = { minLength: 1, maxLength: 6 };
const what: fc.Arbitrary<What> = fc.oneof(
  { weight: 3, arbitrary: fc.constant({ to: "sent" } as const) },
  fc.record({ to: fc.constant("dropped" as const), reason: fc.constantFrom("expired", "unroutable") }),
  {
    weight: 4,
    arbitrary: fc.record(
      {
        to: fc.constant("wait" as const),
        attempts: fc.nat(9),
        retryInMs: fc.constantFrom(0, inAnHour),
        error: fc.constant("refused"),
      },
      { requiredKeys: ["to", "attempts"] },
    ),
  },
  fc.record(
    { to: fc.constant("parked" as const), attempts: fc.nat(9), error: fc.constant("never"), hold: fc.boolean() },
    { requiredKeys: ["to", "attempts", "error"] },
  ),
);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 2,
    arbitrary: fc.record({
      step: fc.constant("append" as const),
      keys: fc.array(fc.constantFrom(...keys, undefined), some),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      step: fc.constant("settle" as const),
      of: fc.uniqueArray(fc.nat(1000), some),
      whats: fc.array(what, { minLength: some.maxLength, maxLength: some.maxLength }),
      alone: fc.boolean(),
    }),
  },
  fc.record({
    step: fc.constant("change" as const),
    action: fc.constantFrom("retry", "discard"),
    status: fc.constantFrom("waiting", "parked"),
    of: fc.nat(1000),
  }),
  fc.record({ step: fc.constant("release" as const), key: fc.constantFrom(...keys) }),
);

/**
 * Every store settles by the same plan as the memory store: the same history, including rows that were read long ago,
 * leaves the same state in both.
 */
export function settleHistoryFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("a settle", () => {
    fact("does what the settle plan says, in any history", async (harness) => {
      const planned = await memoryStoreHarness();
      let run = 0;
      const history = fc.asyncProperty(fc.array(step, { minLength: 2, maxLength: 10 }), async (steps) => {
        const prefix = `h${run++}`;
        expect(await play(harness, prefix, steps)).toEqual(await play(planned, prefix, steps));
      });
      // Each history begins with what the last one left, so shrinking it would test something else.
      await fc.assert(history, { numRuns: 20, endOnFailure: true });
    });
  });
}

/** Plays a history on one store and returns the state after each step. Discards what is left. */
async function play<Tx>(
  harness: StoreHarness<Tx>,
  prefix: string,
  steps: readonly Step[],
): Promise<readonly unknown[]> {
  const { store } = harness;
  const box = store.box(outbox);
  const lanes = await join(box, prefix);
  const known: Row[] = [];
  const seen: unknown[] = [];
  const ids: string[] = [];
  for (const given of steps) {
    switch (given.step) {
      case "append": {
        const messages = given.keys.map((key, index) =>
          testMessage(`${prefix}-${ids.length + index}`, key === undefined ? {} : { key }),
        );
        ids.push(...messages.map(({ id }) => id));
        await commit(harness, ...messages);
        break;
      }
      case "settle": {
        const rows = new Set(given.of.flatMap((index) => known[index % known.length] ?? []));
        // A settle names each place once.
        const places = new Map([...rows].map((row) => [`${row.waiting} ${row.position}`, row]));
        const settlements = [...places.values()].map((row, index) => ({ ...given.whats[index], row }) as Settlement);
        const { standing } = await box.settle(lanes, settlements, { keep: true, alone: given.alone });
        seen.push(standing.size);
        break;
      }
      case "change": {
        const found = (await store.admin.list({ status: given.status, ids })).messages;
        const picked = found[given.of % found.length];
        if (picked === undefined) break;
        seen.push(await store.admin[given.action]({ status: given.status, ids: [picked.id] }, { by: "ann" }));
        break;
      }
      case "release":
        seen.push(await store.admin.release(given.key, { by: "ann" }));
    }
    const rows = await readAll(box);
    known.push(...rows);
    seen.push(
      rows.map(({ message, waiting, held, attempts, crashes, turn }) => {
        return [message.id, waiting, held, attempts, crashes, turn];
      }),
    );
    seen.push(await everything(harness, ids));
  }
  seen.push(await failuresOf(store, ids));
  await clear(store, ids);
  await box.release(prefix);
  return seen;
}

/**
 * The rows in each place by position, the held keys, and the last entries of the audit. Times are reduced to whether
 * they lie ahead.
 */
async function everything<Tx>({ store, contents }: StoreHarness<Tx>, ids: readonly string[]): Promise<unknown> {
  const status = ["pending", "waiting", "parked", "done"] as const;
  const { messages } = await store.admin.list({ status, ids, limit: 100 });
  const audit = (await store.admin.audit({ limit: 100 })).filter(
    ({ ids: [id] }) => id !== undefined && ids.includes(id),
  );
  return [
    messages.map(({ status, id, attempts, lastError, dueAt }) => {
      return [status, id, attempts, lastError, dueAt && dueAt.getTime() > Date.now() + inAnHour / 2];
    }),
    [...(await contents(outbox)).holds].sort(),
    audit.map(({ action, by, reason, count, ids }) => [action, by, reason, count, ...[...ids].sort()].join(" ")).sort(),
  ];
}

async function failuresOf<Tx>({ admin }: Store<Tx>, ids: readonly string[]): Promise<unknown> {
  const found = await Promise.all(ids.map((id) => admin.get(id)));
  return found.map((rows) => rows.map(({ failures }) => failures.map(({ attempt, error }) => [attempt, error])));
}

/** Empties the box for the next history, and releases its keys. */
async function clear<Tx>({ admin }: Store<Tx>, ids: readonly string[]): Promise<void> {
  for (const status of ["pending", "waiting", "parked"] as const) await admin.discard({ status, ids }, { by: "ann" });
  for (const key of keys) await admin.release(key, { by: "ann" });
}
