import { describeOnEach, postgresTestData, remember, testMessages } from "@postbox/testkit";
import pg, { type ClientBase } from "pg";
import type { Box, Lane, Row, Settlement, Store } from "postbox";
import { pgTransactions, postgresStore } from "postbox/postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { explainingStore } from "./explaining-store.js";
import { crowdedLane, fillBox, laterLane, queueLane, size } from "./filled-box.js";

const pendingKey = "outbox_pending_pkey";
const waitKey = "outbox_wait_pkey";
const waitOfKey = "outbox_wait_lane_hold_key_position_idx";
const holdKey = "outbox_hold_pkey";
const dueHolds = "outbox_hold_lane_due_at_idx";
/** 64 and a few rows: reading them from end to end, even more than once, is nothing. */
const small = ["outbox_lane", "outbox_member", "box"];
const lanesAndMembers = 500;

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const { pool, schema, create, drop } = postgresTestData({ connect, transactions: pgTransactions });
  const { plansOf } = explainingStore(pool, schema);
  const outbox = (work: (box: Box) => Promise<unknown>) => plansOf((store) => work(store.box("outbox")));

  const owner = "relay-1";
  let store: Store<ClientBase>;
  let lanes: readonly Lane[];
  /** Five hundred rows from the middle of `pending`, and what comes next of each lane there. */
  let rows: readonly Row[];
  let middle: number;
  let waiting: readonly Row[];

  beforeAll(async () => {
    await create();
    await fillBox(pool, schema);
    store = postgresStore({ pool, schema });
    const box = store.box("outbox");
    await box.renew(owner, 3_600_000, "key");
    lanes = await box.own(owner, 64);
    const { rows: half } = await pool.query(`SELECT max(position) / 2 AS middle FROM ${schema}.outbox_pending`);
    middle = Number(half[0].middle);
    const every = lanes.map(({ lane }) => ({ lane, after: middle, limit: 10 }));
    const read = [...(await box.read(every)).rows, ...(await box.due(every))];
    rows = read.filter((row) => !row.waiting).slice(0, 500);
    waiting = read.filter((row) => row.waiting).slice(0, 100);
  });
  afterAll(drop);

  // In this order, each on what the one before has left.
  describe("on tables that were never analyzed", facts);

  describe("on tables that were analyzed", () => {
    beforeAll(async () => {
      await pool.query("ANALYZE");
    });
    facts();
  });

  describe("after most rows were deleted and not yet vacuumed away", () => {
    beforeAll(async () => {
      const [first, last] = [middle - size.pending / 20, middle + size.pending / 20];
      await pool.query(`DELETE FROM ${schema}.outbox_pending WHERE position NOT BETWEEN ${first} AND ${last}`);
    });
    facts();
  });

  function facts(): void {
    it.each([
      ["reads a few of each lane", () => ({ after: middle, limit: 10 }), 64 * 10],
      ["reads one lane", (lane: number) => (lane === 1 ? { after: middle, limit: 500 } : undefined), 500],
      ["finds nothing new in any lane", () => ({ after: Number.MAX_SAFE_INTEGER, limit: 1 }), 64],
    ])("%s", async (_, wanted, asked) => {
      const reads = lanes.flatMap(({ lane }) => ({ lane, ...wanted(lane) })).filter((read) => "limit" in read);
      const plans = await outbox((box) => box.read(reads as Parameters<Box["read"]>[0]));
      // Each with a look at its key's hold.
      holds(plans, [pendingKey], 3 * asked);
    });

    it.each([
      ["reads what is due of every lane", () => ({ limit: 10 }), 64 * 10],
      ["reads a lane where many keys wait", (lane: number) => ofLane(lane, crowdedLane), 500],
      ["reads a lane where one key has a long queue", (lane: number) => ofLane(lane, queueLane), 500],
      ["reads a lane where many keys are not due", (lane: number) => ofLane(lane, laterLane), 500],
    ])("%s", async (_, wanted, asked) => {
      const reads = lanes.flatMap(({ lane }) => ({ lane, ...wanted(lane) })).filter((read) => "limit" in read);
      const plans = await outbox((box) => box.due(reads as Parameters<Box["due"]>[0]));
      // Twice as many as were asked for at most, each key of them with its hold.
      holds(plans, [waitOfKey, dueHolds], 4 * asked);
    });

    it("finds what committed late", async () => {
      const gaps = lanes.map(({ lane }) => {
        const known = rows.filter((row) => row.lane === lane).map(({ position }) => position);
        return { lane, after: middle, upTo: Math.max(middle, ...known), known: known.slice(1) };
      });
      holds(await outbox((box) => box.late(gaps, 1000)), [pendingKey], 2 * rows.length);
    });

    it("settles what was sent", async () => {
      const settlements = rows.map((row): Settlement => ({ row, to: "sent" }));
      holds(await outbox((box) => box.settle(lanes, settlements)), [pendingKey], 2 * rows.length);
      // What was deleted is looked through once for each of the things that may become of it.
      holds(await outbox((box) => box.settle(lanes, settlements, { keep: true })), [pendingKey], 10 * rows.length);
    });

    it("settles whatever became of rows", async () => {
      const fates: readonly ((row: Row) => Settlement)[] = [
        (row) => ({ row, to: "sent" }),
        (row) => ({ row, to: "wait", attempts: 1, retryInMs: 1_000, error: "refused" }),
        (row) => ({ row, to: "wait", attempts: 0 }),
        (row) => ({ row, to: "parked", attempts: 10, error: "refused" }),
      ];
      const all = [...rows, ...waiting];
      const settlements = all.map((row, index) => (fates[index % fates.length] as (row: Row) => Settlement)(row));
      holds(await outbox((box) => box.settle(lanes, settlements)), [pendingKey, waitKey, holdKey], 10 * all.length);
    });

    it("appends what is due", async () => {
      // Each is found, locked and deleted.
      holds(await outbox((box) => box.promote(500)), ["outbox_scheduled_pkey"], 5 * 500);
    });

    it("notes crashes", async () => {
      const plans = await outbox((box) => box.suspect(lanes, [...rows, ...waiting]));
      holds(plans, [pendingKey, waitKey], 2 * (rows.length + waiting.length));
    });

    it("looks at lanes and members only, where it is about them", async () => {
      holds(await outbox((box) => box.renew(owner, 60_000, "key")), [], 0);
      holds(await outbox((box) => box.own("relay-2", 64)), [], 0);
      holds(await outbox((box) => box.release(owner, lanes)), [], 0);
      holds(await outbox((box) => box.release(owner)), [], 0);
    });

    it("appends and remembers without looking around", async () => {
      const messages = testMessages("new", 100, { key: "k" });
      holds(await plansOf((to, tx) => to.append(tx, "outbox", messages.slice(0, 1))), [], 0);
      holds(await plansOf((to, tx) => to.append(tx, "outbox", messages)), [], 0);
      for (const id of ["new-0", "1"]) {
        const [message] = testMessages(id, 1);
        const plans = await plansOf((to, tx) => remember(to, tx, "billing", { ...message, id } as never));
        holds(plans, [], 0);
      }
    });
  }
});

function ofLane(lane: number, wanted: number) {
  return lane === wanted ? { after: Number.MAX_SAFE_INTEGER, limit: 500 } : undefined;
}

/** Each of the plans uses these indexes, reads no large table from end to end, and looks at no more rows than this. */
function holds(
  plans: readonly { readWhole: readonly string[]; indexes: readonly string[]; visited: number }[],
  indexes: readonly string[],
  most: number,
): void {
  expect(plans).toHaveLength(6);
  for (const plan of plans) {
    expect(plan.readWhole.filter((table) => !small.includes(table))).toEqual([]);
    expect(plan.indexes).toEqual(expect.arrayContaining([...indexes]));
    expect(plan.visited).toBeLessThanOrEqual(most + lanesAndMembers);
  }
}
