import { testMessage, testMessages } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { remember } from "@postbox/testkit/suites";
import pg, { type ClientBase } from "pg";
import { inboxOf, type Store } from "postbox";
import { pgTransactions, postgresStore } from "postbox/postgres";
import type { Box, Lane, Row, Settlement } from "postbox/store";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { crowdedLane, fillBox, laterLane, queueLane, type Size } from "./filled-box.js";
import { forgedStatistics, forgeStatistics, hostileSettings, watchedPool } from "./forged-statistics.js";

/*
 * Every statement of the relay and of the inbox touches a few pages for each row that it is about, whatever the planner
 * believes of the tables and whatever the session says about plans.
 */

const rowsAtOnce = 64;
/** Pages of a table, an index or two of several levels, and what is written beside it. */
const pagesPerRow = 40;
const settings = {
  ...hostileSettings,
  "no indexes": { enable_indexscan: "off", enable_indexonlyscan: "off", enable_bitmapscan: "off" },
  "arrays without NULL": { array_nulls: "off" },
};

/** Registers the tests, on tables of this size. */
export function relayPlans(size: Size): void {
  describeOnEach("postgres", ({ url }) => {
    const connect = () => new pg.Pool({ connectionString: url, max: 4 });
    const { pool, schema, create, drop } = postgresTestData({ connect, transactions: pgTransactions });
    const owner = "relay-1";
    let lanes: readonly Lane[];

    beforeAll(async () => {
      await create();
      await fillBox(pool, schema, size);
      // To plan a statement is to read the catalogs: where autovacuum is off, the tables of earlier tests are still in
      // them.
      await pool.query(
        "VACUUM pg_attribute, pg_attrdef, pg_class, pg_constraint, pg_depend, pg_index, pg_inherits, pg_proc, " +
          "pg_statistic, pg_type",
      );
      const box = postgresStore({ pool, schema }).box("outbox");
      await box.renew(owner, 3_600_000, "key");
      lanes = await box.own(owner, 64);
    });
    afterAll(drop);

    const some = forgedStatistics.filter((_, index) => index % 5 === 0);
    describe.each(Object.entries(settings))("with %s", (name, given) => {
      const watched = watchedPool(url, given);
      const store: Store<ClientBase> = postgresStore({ pool: watched.pool, schema });
      const box: Box = store.box("outbox");
      afterAll(() => watched.pool.end());

      it.each(name === "the defaults" ? forgedStatistics : some)("and $counts, $columns", async (forged) => {
        // What changes rows is prepared before, so that the statements are planned for what is believed.
        const verbs = await prepared(store, box);
        await forgeStatistics(pool, schema, forged);
        const expensive: Record<string, number> = {};
        for (const { what, rows, work } of verbs) {
          const ran = await watched.ranBy(work);
          expect(ran.length).toBeGreaterThan(0);
          const pages = Math.max(...ran.map(({ buffers }) => buffers));
          if (pages > pagesPerRow * rows) expensive[what] = Math.round(pages / rows);
        }
        expect(expensive).toEqual({});
      });
    });

    /** Every verb, about so many rows. */
    async function prepared(store: Store<ClientBase>, box: Box) {
      const every = (limit: number) => Array.from({ length: 64 }, (_, lane) => ({ lane, limit }));
      const tips = [...(await box.read(every(6))).rows];
      const due = [...(await box.due(every(4)))];
      const pending = (count: number): Row[] => tips.splice(0, count);
      const waiting = (count: number): Row[] => due.splice(0, count);
      const verbs: { readonly what: string; readonly rows: number; readonly work: () => Promise<unknown> }[] = [];
      const verb = (what: string, rows: number, work: () => Promise<unknown>) => verbs.push({ what, rows, work });

      verb("reads the tips of all lanes", 64, () => box.read(every(1)));
      verb("reads what is due in all lanes", 64, () => box.due(every(1)));
      const lane = (number: number) => [{ lane: number, limit: rowsAtOnce }];
      verb("reads a lane in which many keys wait", rowsAtOnce, () => box.due(lane(crowdedLane)));
      verb("reads a lane in which one key has a long queue", rowsAtOnce, () => box.due(lane(queueLane)));
      verb("reads a lane in which many keys are not due", rowsAtOnce, () => box.due(lane(laterLane)));

      const [first] = pending(1) as [Row];
      const upTo = first.position + 64 * rowsAtOnce;
      const gap = { lane: first.lane, after: first.position - 1, upTo, known: [first.position] };
      verb("finds what committed late", rowsAtOnce, () => box.late([gap], rowsAtOnce));

      for (const keep of [false, true]) {
        const settlements = pending(rowsAtOnce).map((row): Settlement => ({ row, to: "sent" }));
        verb(`settles what was sent (keep: ${keep})`, rowsAtOnce, () => box.settle(lanes, settlements, { keep }));
      }
      const fates: readonly ((row: Row) => Settlement)[] = [
        (row) => ({ row, to: "sent" }),
        (row) => ({ row, to: "wait", attempts: 1, retryInMs: 1, error: "refused" }),
        (row) => ({ row, to: "wait", attempts: 0 }),
        (row) => ({ row, to: "parked", attempts: 10, error: "refused" }),
        (row) => ({ row, to: "pending", attempts: 1, error: "refused" }),
        (row) => ({ row, to: "dropped", reason: "expired" }),
      ];
      const all = [...pending(40), ...waiting(24)].map(
        (row, index) => fates[index % fates.length]?.(row) as Settlement,
      );
      verb("settles whatever became of rows", rowsAtOnce, () => box.settle(lanes, all));
      const suspects = [...pending(32), ...waiting(32)];
      verb("notes crashes", rowsAtOnce, () => box.suspect(lanes, suspects));
      verb("appends what is due, each deleted and inserted anew", 40, () => box.promote(20));
      verb("shares lanes", 64, async () => {
        await box.renew("relay-2", 60_000, "key");
        await box.own("relay-2", 64);
        await box.release("relay-2", [{ lane: 1, epoch: 1 }]);
        await box.release("relay-2");
      });

      const consumer = `c${verbs.length}${performance.now()}`;
      const arrival = { consumer, message: testMessage("1", { key: "k" }), id: "1" };
      await store.inbox.keep([arrival], { retentionMs: 60_000, lockTimeoutMs: 1_000 });
      const inbox = store.box(inboxOf(consumer));
      await inbox.renew(owner, 60_000, "key");
      const own = await inbox.own(owner, 64);
      const [kept] = (await inbox.read(every(1))).rows as [Row];
      const epoch = own.find((taken) => taken.lane === kept.lane)?.epoch as number;
      verb("appends, remembers and takes out of an inbox", 15, () =>
        store.transaction(async (tx) => {
          await store.append(tx, "outbox", testMessages("new", 10, { key: "k" }));
          await remember(store, tx, "billing", testMessage("1"));
          expect(await store.inbox.handled(tx, arrival, kept, epoch)).toBe(true);
        }),
      );
      return verbs;
    }
  });
}
