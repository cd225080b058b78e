import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Row, Settlement } from "../store.js";
import { keptFailures } from "./admin-options.js";
import { type SettledRow, type SettleState, settlePlan } from "./settle-plan.js";

/*
 * Compares the plan with an independent model: a box as one list of rows and one of holds, where each settlement takes
 * effect by itself, one after another.
 */

const now = 1_000_000;

interface ModelRow {
  readonly id: string;
  readonly key: string | undefined;
  readonly at: string;
  place: "pending" | "wait" | "parked" | "done" | "gone";
  hold: string | undefined;
  attempts: number;
  error: string | undefined;
  failures: string[];
  turn: number;
  holds: boolean;
}

interface Model {
  readonly rows: ModelRow[];
  readonly holds: Map<string, number>;
  readonly drops: Map<string, string[]>;
}

function settleModel({ rows, holds, drops }: Model, settlements: readonly Settlement[], alone: boolean): void {
  const left: string[] = [];
  const holdOf = (id: string, key: string | undefined) => `0 ${alone || key === undefined ? `\u0001${id}` : key}`;
  for (const settlement of settlements) {
    const { row: read } = settlement;
    const found = rows.find(
      ({ at, place, id, turn }) =>
        at === `${read.lane} ${read.position}` &&
        place === (read.waiting ? "wait" : "pending") &&
        id === read.message.id &&
        (!read.waiting || turn === read.turn),
    );
    if (found === undefined) {
      if (settlement.to === "sent" && read.waiting) left.push(`0 ${read.message.key ?? `\u0001${read.message.id}`}`);
      continue;
    }
    const was = found.hold;
    const name = was ?? holdOf(found.id, found.key);
    if (settlement.to === "sent") {
      found.place = "done";
      found.attempts += 1;
    } else if (settlement.to === "dropped") {
      found.place = "gone";
      drops.set(settlement.reason, [...(drops.get(settlement.reason) ?? []), found.id]);
    } else {
      found.attempts = settlement.attempts;
      if (settlement.error !== undefined) {
        found.error = settlement.error;
        found.failures = [...found.failures, `${settlement.attempts} ${now} ${settlement.error}`].slice(-keptFailures);
      }
      if (settlement.to === "parked") {
        found.place = "parked";
        found.holds = settlement.hold === true && found.key !== undefined;
        if (found.holds) holds.set(`0 ${found.key}`, Number.POSITIVE_INFINITY);
      } else if (settlement.to === "wait" || was !== undefined) {
        found.place = "wait";
        found.hold = name;
        const before = holds.get(name);
        const retryInMs = settlement.to === "wait" ? settlement.retryInMs : undefined;
        if (before === undefined) holds.set(name, now + (retryInMs ?? 0));
        else if (before !== Number.POSITIVE_INFINITY && retryInMs !== undefined) holds.set(name, now + retryInMs);
      }
    }
    if (found.place !== "wait") {
      found.hold = undefined;
      if (was !== undefined) left.push(was);
    }
  }
  for (const name of left) {
    const isEmpty = !rows.some(({ hold }) => hold === name);
    if (isEmpty && holds.get(name) !== Number.POSITIVE_INFINITY) holds.delete(name);
  }
}

/** A box and settlements of its rows. Some were read when the row had another message or turn, or have left since. */
interface Scene {
  readonly rows: readonly SettledRow[];
  readonly holds: ReadonlyMap<string, number>;
  readonly settlements: readonly Settlement[];
  readonly alone: boolean;
}

const key = fc.constantFrom(undefined, undefined, "a", "b", "c");
const due = fc.constantFrom(now - 5, now + 5, Number.POSITIVE_INFINITY);
const scene: fc.Arbitrary<Scene> = fc
  .record({
    rows: fc.array(
      fc.record({
        key,
        alone: fc.boolean(),
        waits: fc.boolean(),
        turn: fc.nat(1),
        attempts: fc.nat(3),
        failures: fc.nat(keptFailures),
        settled: fc.boolean(),
        // How it was read.
        read: fc.constantFrom("as it is", "as it is", "as it is", "another id", "another turn", "elsewhere", "gone"),
        fate: fc.oneof(
          fc.constant({ to: "sent" }),
          fc.record({ to: fc.constant("dropped"), reason: fc.constantFrom("expired", "unroutable") }),
          fc.record(
            {
              to: fc.constant("wait"),
              attempts: fc.nat(9),
              retryInMs: fc.constantFrom(0, 7, Number.POSITIVE_INFINITY),
              error: fc.constant("no"),
            },
            { requiredKeys: ["to", "attempts"] },
          ),
          fc.record(
            { to: fc.constant("parked"), attempts: fc.nat(9), error: fc.constant("never"), hold: fc.boolean() },
            { requiredKeys: ["to", "attempts", "error"] },
          ),
          fc.record({ to: fc.constant("pending"), attempts: fc.nat(9), error: fc.constant("not yet") }),
        ),
      }),
      { maxLength: 12 },
    ),
    held: fc.dictionary(fc.constantFrom("a", "b", "c"), due),
    dues: fc.array(due, { minLength: 12, maxLength: 12 }),
    withoutHolds: fc.boolean(),
    alone: fc.boolean(),
    order: fc.infiniteStream(fc.double({ noNaN: true })),
  })
  .map(({ rows: given, held, dues, withoutHolds, alone, order }) => {
    const holds = new Map<string, number>(Object.entries(held).map(([name, dueAt]) => [`0 ${name}`, dueAt]));
    const rows: SettledRow[] = [];
    const settlements: { readonly settlement: Settlement; readonly at: number }[] = [];
    for (const [index, { key, waits, turn, attempts, failures, settled, read, fate, ...row }] of given.entries()) {
      const message = key === undefined ? { id: `m${index}` } : { id: `m${index}`, key };
      const hold = row.alone || key === undefined ? `\u0001${message.id}` : key;
      const stored: SettledRow = {
        lane: 0,
        position: index + 1,
        message,
        attempts,
        crashes: 1,
        failures: Array.from({ length: failures }, (_, n) => ({ attempt: n, at: n, error: "before" })),
        ...(waits && { hold, turn }),
      };
      if (read !== "gone") {
        rows.push(stored);
        if (waits && !withoutHolds && !holds.has(`0 ${hold}`)) holds.set(`0 ${hold}`, dues[index] as number);
      }
      if (!settled) continue;
      const asRead = {
        ...stored,
        position: read === "elsewhere" ? stored.position + 100 : stored.position,
        message: read === "another id" ? { ...message, id: "another" } : message,
        ...(waits && { turn: read === "another turn" ? turn + 1 : turn }),
        waiting: waits,
        held: false,
      };
      settlements.push({
        settlement: { row: asRead as unknown as Row, ...fate } as Settlement,
        at: order.next().value as number,
      });
    }
    settlements.sort((a, b) => a.at - b.at);
    return { rows, holds, settlements: settlements.map(({ settlement }) => settlement), alone };
  });

function modelOf({ rows, holds }: Pick<Scene, "rows" | "holds">): Model {
  return {
    rows: rows.map(({ lane, position, message, attempts, error, failures, hold, turn }) => ({
      id: message.id,
      key: message.key,
      at: `${lane} ${position}`,
      place: hold === undefined ? "pending" : "wait",
      hold: hold === undefined ? undefined : `${lane} ${hold}`,
      attempts,
      error,
      failures: failures.map((failure) => `${failure.attempt} ${failure.at} ${failure.error}`),
      turn: turn ?? 0,
      holds: false,
    })),
    holds: new Map(holds),
    drops: new Map(),
  };
}

/** What a store loads: only rows that are named, and no more waiting rows than it must count. */
function loaded({ rows, holds, settlements }: Scene): SettleState<SettledRow> {
  const named = ({ position, hold }: SettledRow) =>
    settlements.some(({ row }) => row.position === position && row.waiting === (hold !== undefined));
  const found = rows.filter(named);
  return {
    now,
    rows: found,
    holds: [...holds].map(([at, dueAt]) => {
      const name = at.slice(2);
      const count = (among: readonly SettledRow[]) => among.filter(({ hold }) => hold === name).length;
      return { lane: 0, name, dueAt, waiting: Math.min(count(rows), count(found) + 1) };
    }),
  };
}

/** Writes a plan into a box. */
function apply({ rows, holds }: Scene, plan: ReturnType<typeof settlePlan<SettledRow>>): Model {
  const model = modelOf({ rows, holds });
  for (const { lane, name, dueAt } of plan.held) model.holds.set(`${lane} ${name}`, dueAt);
  for (const { before, to, after } of plan.rows) {
    const index = rows.indexOf(before);
    const [row] = modelOf({ rows: [after], holds }).rows as [ModelRow];
    const place = ({ sent: "done", dropped: "gone" } as const)[to as string] ?? to;
    model.rows[index] = { ...row, place: place as ModelRow["place"], holds: after.holds === true };
    if (to !== "dropped") expect(after.crashes).toBe(0);
  }
  for (const { lane, name } of plan.freed) model.holds.delete(`${lane} ${name}`);
  for (const { reason, ids } of plan.drops) model.drops.set(reason, [...ids]);
  return model;
}

describe("a settle plan", () => {
  const runs = { numRuns: 5_000 };

  it("writes what a model does that settles one row after the other", () => {
    fc.assert(
      fc.property(scene, (given) => {
        const model = modelOf(given);
        settleModel(model, given.settlements, given.alone);
        expect(apply(given, settlePlan(loaded(given), given.settlements, given))).toEqual(model);
      }),
      runs,
    );
  });

  it("loses no row, holds all that wait, and names each row and each hold once", () => {
    fc.assert(
      fc.property(scene, (given) => {
        const plan = settlePlan(loaded(given), given.settlements, given);
        const written = plan.rows.map(({ before }) => before);
        expect(new Set(written).size).toBe(written.length);
        const names = [...plan.held, ...plan.freed].map(({ lane, name }) => `${lane} ${name}`);
        expect(new Set(names).size).toBe(names.length);
        const { rows, holds } = apply(given, plan);
        expect(rows.map(({ id }) => id)).toEqual(given.rows.map(({ message }) => message.id));
        for (const { before, to, after } of plan.rows) {
          expect(after).toMatchObject({ lane: before.lane, position: before.position, message: before.message });
          if (to === "wait") expect(holds.has(`${after.lane} ${after.hold}`)).toBe(true);
        }
        // No settle releases what an operator has to release.
        for (const [name, dueAt] of given.holds) {
          if (dueAt === Number.POSITIVE_INFINITY) expect(holds.get(name)).toBe(dueAt);
        }
      }),
      runs,
    );
  });

  it("changes nothing more when it is settled again, but for tries that are counted where a row stays", () => {
    fc.assert(
      fc.property(scene, (given) => {
        const once = apply(given, settlePlan(loaded(given), given.settlements, given));
        const twice = structuredClone(once);
        settleModel(twice, given.settlements, given.alone);
        const moved = ({ rows }: Model) => rows.map(({ id, place, hold, attempts }) => [id, place, hold, attempts]);
        expect(moved(twice)).toEqual(moved(once));
        expect(twice.drops).toEqual(once.drops);
      }),
      runs,
    );
  });
});
