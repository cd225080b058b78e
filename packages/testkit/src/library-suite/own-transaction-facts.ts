import { inspect } from "node:util";
import { createOutbox, defineEvent, type Outbox, type Publisher, type Store } from "postbox";
import { postgresStore } from "postbox/postgres";
import type { TransactionLibrary } from "postbox/store";
import { describe, expect, it } from "vitest";
import { gate } from "../gate.js";
import type { PostgresTestData } from "../postgres-store-harness.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import type { StoreHarness } from "../store-suite/store-harness.js";
import type { LibrarySuiteOptions } from "./library-harness.js";
import { Placed } from "./placed.js";

const refused = { code: "not-a-transaction" };
const broken = "SELECT 1 / 0";
const lockNotAvailable = "55P03";

/**
 * In a failed transaction, either Postbox refuses to write or the database does. Libraries keep the database's code in
 * different places.
 */
function isOfAbortedTransaction(error: unknown): boolean {
  return (error as { readonly code?: unknown }).code === refused.code || inspect(error, { depth: 8 }).includes("25P02");
}

/** Publishing in a transaction that the user has opened with the library. */
export function ownTransactionFacts<Tx>(
  fact: StoreFact<Tx>,
  library: LibrarySuiteOptions<Tx>,
  { pool, schema }: PostgresTestData<Tx>,
): void {
  const { begin, nested, run } = library;
  const order = (tx: Tx, id: string) => run(tx, `INSERT INTO ${schema}.effect VALUES ('${id}')`);
  const outboxOf = (store: Store<Tx>, strictKeyOrder = false): Outbox<Tx> =>
    createOutbox(store, { source: "/shop", strictKeyOrder });
  /** The committed messages and effects. */
  const committed = async ({ contents, effects }: StoreHarness<Tx>) => ({
    orders: [...(await effects())].sort(),
    messages: (await contents("outbox")).pending,
  });
  const nothing = { orders: [], messages: [] };
  /** How a transaction ended for its user. */
  const ending = (work: (tx: Tx) => Promise<void>): Promise<string> =>
    begin(work).then(
      () => "committed",
      (error: Error) => error.message,
    );

  const ways: Readonly<Record<string, (publisher: Publisher, id: string) => Promise<unknown>>> = {
    publish: (publisher, id) => publisher.publish(Placed, { order: "o1" }, { id, key: "k" }),
    publishAll: (publisher, id) =>
      publisher.publishAll(
        [`${id} a`, `${id} b`].map((each) => Placed.message({ order: "o1" }, { id: each, key: "k" })),
      ),
    deliverAt: (publisher, id) =>
      publisher.publish(Placed, { order: "o1" }, { id, deliverAt: new Date(Date.now() + 3_600_000) }),
  };
  const written = async ({ contents }: StoreHarness<Tx>) => {
    const { pending, scheduled } = await contents("outbox");
    return [...pending, ...scheduled];
  };

  describe("in the user's own transaction", () => {
    fact("a message commits with the user's writes", async (harness) => {
      const outbox = outboxOf(harness.store);
      const answer = await begin(async (tx) => {
        await order(tx, "o1");
        const { id } = await outbox.in(tx).publish(Placed, { order: "o1" }, { id: "m1" });
        await order(tx, "o2");
        return id;
      });
      expect(answer).toBe("m1");
      expect(await committed(harness)).toEqual({ orders: ["o1", "o2"], messages: ["m1"] });
    });

    fact("a message rolls back with them", async (harness) => {
      const outbox = outboxOf(harness.store);
      const failing = begin(async (tx) => {
        await order(tx, "o1");
        await outbox.in(tx).publish(Placed, { order: "o1" });
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect(await committed(harness)).toEqual(nothing);
    });

    fact("does not contain concurrent writes of others", async (harness) => {
      const outbox = outboxOf(harness.store);
      const names = ["a", "b", "c", "d", "e", "f"];
      const all = names.map((name) =>
        begin(async (tx) => {
          await order(tx, name);
          await outbox.in(tx).publish(Placed, { order: name }, { id: name });
          if (name > "c") throw new Error("no stock");
        }),
      );
      await Promise.allSettled(all);
      const { orders, messages } = await committed(harness);
      expect([orders, [...messages].sort()]).toEqual([
        ["a", "b", "c"],
        ["a", "b", "c"],
      ]);
    });

    fact("several messages take one statement", async (harness) => {
      let statements = 0;
      const own = library.transactions(pool);
      const counting: TransactionLibrary<Tx, "postgres"> = {
        ...own,
        executor(tx) {
          const execute = own.executor(tx);
          return (statement, params) => {
            statements++;
            return execute(statement, params);
          };
        },
      };
      const outbox = outboxOf(postgresStore({ pool, schema, transactions: counting }));
      // The first append also checks the schema.
      await begin((tx) => outbox.in(tx).publish(Placed, { order: "o0" }, { id: "m0" }));
      statements = 0;
      await begin(async (tx) => {
        const drafts = ["m1", "m2", "m3"].map((id) => Placed.message({ order: id }, { id }));
        expect(await outbox.in(tx).publishAll(drafts)).toEqual([{ id: "m1" }, { id: "m2" }, { id: "m3" }]);
      });
      expect(statements).toBe(1);
      expect((await committed(harness)).messages).toEqual(["m0", "m1", "m2", "m3"]);
    });

    fact("a rejected publish leaves it usable", async (harness) => {
      const outbox = outboxOf(harness.store);
      const Picky = defineEvent({
        type: "shop.Picky",
        schema: { "~standard": { version: 1, vendor: "test", validate: () => ({ issues: [{ message: "no" }] }) } },
      });
      await begin(async (tx) => {
        await order(tx, "o1");
        await expect(outbox.in(tx).publish(Picky, {})).rejects.toMatchObject({ code: "data-invalid" });
        await outbox.in(tx).publish(Placed, { order: "o1" }, { id: "m1" });
      });
      expect(await committed(harness)).toEqual({ orders: ["o1"], messages: ["m1"] });
    });

    fact("an error in the middle leaves it as the library would", async (harness) => {
      const outbox = outboxOf(harness.store);
      const alone = await ending(async (tx) => {
        await order(tx, "o1");
        await run(tx, broken).catch(() => {});
      });
      const withMessages = await ending(async (tx) => {
        await outbox.in(tx).publish(Placed, { order: "o1" });
        await run(tx, broken).catch(() => {});
        const refusal = outbox.in(tx).publish(Placed, { order: "o1" });
        await expect(refusal).rejects.toSatisfy(isOfAbortedTransaction);
      });
      expect(withMessages).toBe(alone);
      expect(await committed(harness)).toEqual(nothing);
    });

    if (nested === undefined) it.skip("savepoints (the library has none)");
    else {
      fact("a rolled back savepoint removes its messages, and no others", async (harness) => {
        const outbox = outboxOf(harness.store);
        await begin(async (tx) => {
          await outbox.in(tx).publish(Placed, { order: "o1" }, { id: "m1" });
          const inner = nested(tx, async (own) => {
            await order(own, "o2");
            await outbox.in(own).publish(Placed, { order: "o2" }, { id: "m2" });
            throw new Error("no stock");
          });
          await expect(inner).rejects.toThrow("no stock");
          await nested(tx, async (own) => {
            await order(own, "o3");
            await outbox.in(own).publish(Placed, { order: "o3" }, { id: "m3" });
          });
          await order(tx, "o4");
          await outbox.in(tx).publish(Placed, { order: "o4" }, { id: "m4" });
        });
        expect(await committed(harness)).toEqual({ orders: ["o3", "o4"], messages: ["m1", "m3", "m4"] });
      });

      fact("an error behind a savepoint leaves the rest usable", async (harness) => {
        const outbox = outboxOf(harness.store);
        const outcome = await ending(async (tx) => {
          await nested(tx, (own) => run(own, broken)).catch(() => {});
          await outbox.in(tx).publish(Placed, { order: "o1" }, { id: "m1" });
        });
        expect([outcome, (await committed(harness)).messages]).toEqual(["committed", ["m1"]]);
      });
    }
  });

  describe("a handle is rejected, with the right call,", () => {
    fact("when it is not a transaction", async (harness) => {
      const outbox = outboxOf(harness.store);
      const impostors = library.impostors();
      expect(impostors.length).toBeGreaterThan(0);
      for (const impostor of impostors) {
        const wrong = outbox.in(impostor as Tx).publish(Placed, { order: "o1" });
        await expect(wrong).rejects.toMatchObject({ ...refused, message: expect.stringContaining(library.rightCall) });
      }
      expect(await committed(harness)).toEqual(nothing);
    });

    fact("once its transaction has ended", async (harness) => {
      const outbox = outboxOf(harness.store);
      const ended: Tx[] = [];
      await begin(async (tx) => void ended.push(tx));
      await begin((tx) => Promise.reject(new Error(String(ended.push(tx))))).catch(() => {});
      expect(ended).toHaveLength(2);
      await harness.store.transaction(async (tx) => void ended.push(tx));
      for (const tx of ended) {
        for (const publish of Object.values(ways)) {
          await expect(publish(outbox.in(tx), "ghost")).rejects.toMatchObject(refused);
        }
      }
      expect(await written(harness)).toEqual([]);
    });
  });

  // The user forgets to await a publish. Between the check of the handle and the statement, the library may send its
  // ROLLBACK; a statement after that would commit on its own.
  describe.each(Object.keys(ways))("%s", (way) => {
    const late = (publisher: Publisher, id: string) => ways[way]?.(publisher, id) as Promise<unknown>;

    fact("writes nothing behind a ROLLBACK that is in progress", async (harness) => {
      const outbox = outboxOf(harness.store, way !== "publish");
      await begin((tx) => outbox.in(tx).publish(Placed, { order: "o0" }, { id: "m0" }));
      for (let step = -60; step <= 60; step += way === "publish" ? 1 : 7) {
        let publishing: Promise<unknown> = Promise.resolve();
        const failing = begin(async (tx) => {
          publishing = turns(step).then(() => late(outbox.in(tx), `ghost ${step}`));
          publishing.catch(() => {});
          await turns(-step);
          throw new Error("no stock");
        });
        await Promise.allSettled([failing, publishing]);
      }
      expect(await written(harness)).toEqual(["m0"]);
    });

    fact("writes nothing that was queued behind another statement", async (harness) => {
      const outbox = outboxOf(harness.store, way !== "publish");
      await begin((tx) => outbox.in(tx).publish(Placed, { order: "o0" }, { id: "m0" }));
      for (const open of [begin, harness.store.transaction] as const) {
        const others: Promise<unknown>[] = [];
        // Some libraries run a statement each time its result is awaited.
        const start = (work: Promise<unknown>) => void others.push((async () => work)().catch(() => {}));
        const failing = open(async (tx: Tx) => {
          start(run(tx, "SELECT pg_sleep(0.05)"));
          start(late(outbox.in(tx), "ghost"));
          start(run(tx, "SELECT 1"));
          throw new Error("no stock");
        });
        await expect(failing).rejects.toThrow("no stock");
        await Promise.allSettled(others);
      }
      expect(await written(harness)).toEqual(["m0"]);
    });
  });

  fact("an error of the database in a publish keeps its code", async (harness) => {
    const { store } = harness;
    const outbox = outboxOf(store, true);
    await store.transaction(async (first) => {
      await outbox.in(first).publish(Placed, { order: "o1" }, { id: "m1", key: "k" });
      const second = begin(async (tx) => {
        await run(tx, "SET LOCAL lock_timeout = '50ms'");
        await outbox.in(tx).publish(Placed, { order: "o2" }, { id: "m2", key: "k" });
      });
      const error = await second.catch((thrown: unknown) => thrown);
      expect(inspect(error, { depth: 8 })).toContain(lockNotAvailable);
      expect(error).not.toMatchObject({ code: "not-a-transaction" });
    });
    expect(await written(harness)).toEqual(["m1"]);
  });

  fact("a lost connection is classified as unavailable, and replaced", async (harness) => {
    const { store } = harness;
    const end = "SELECT pg_terminate_backend(pg_backend_pid())";
    const thrown = store.transaction((tx) => run(tx, end));
    const within = store.transaction((tx) => (nested ? nested(tx, (own) => run(own, end)) : run(tx, end)));
    const swallowed = store.transaction(async (tx) => {
      await run(tx, end).catch(() => {});
      // The library may learn only now that the connection has ended, and reports it by no event.
      await new Promise((resolve) => setTimeout(resolve, 20));
      await outboxOf(store).in(tx).publish(Placed, { order: "o1" });
    });
    for (const outcome of await Promise.allSettled([thrown, within, swallowed])) {
      expect(outcome).toMatchObject({ status: "rejected" });
      const { reason } = outcome as PromiseRejectedResult;
      expect(store.isUnavailable(reason), String(reason)).toBe(true);
    }
    await store.transaction((tx) => outboxOf(store).in(tx).publish(Placed, { order: "o1" }, { id: "m1" }));
    expect((await committed(harness)).messages).toEqual(["m1"]);
  });

  fact("a read-only server is unavailable, an error of a foreign server is not", async ({ store }) => {
    const refusing = store.transaction(async (tx) => {
      await run(tx, "SET TRANSACTION READ ONLY");
      await run(tx, `CREATE TABLE ${schema}.never (id integer)`);
    });
    await expect(refusing).rejects.toSatisfy((error) => store.isUnavailable(error));
    // The code of a foreign table's error: the statement has failed, and its connection continues.
    const foreign = store.transaction((tx) =>
      run(tx, "DO $$ BEGIN RAISE EXCEPTION 'no such server' USING ERRCODE = '08001'; END $$"),
    );
    await expect(foreign).rejects.toSatisfy((error) => !store.isUnavailable(error));
  });

  fact("two hundred lost connections, in transactions and between them, leak none", async ({ store }) => {
    await pool.query(`CREATE TABLE IF NOT EXISTS ${schema}.session (pid integer)`);
    const register = (tx: Tx) => run(tx, `INSERT INTO ${schema}.session VALUES (pg_backend_pid())`);
    let lost = 0;
    const working = Array.from({ length: 12 }, async () => {
      while (lost < 200) await store.transaction(register).catch(() => new Promise(setImmediate));
    });
    try {
      while (lost < 200) {
        // Other users of the pool may hold one of the sessions that are ended here.
        const ended = await pool
          .query(
            `WITH known AS (DELETE FROM ${schema}.session RETURNING pid)
               SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) AS count
               FROM (SELECT DISTINCT pid FROM known WHERE pid <> pg_backend_pid() LIMIT 4) AS chosen
               WHERE pid IN (SELECT pid FROM pg_stat_activity)`,
          )
          .catch((error: unknown) => {
            if (!store.isUnavailable(error)) throw error;
          });
        lost += ended === undefined ? 0 : Number(ended.rows[0].count);
      }
    } finally {
      // Also after an error: nothing may continue when the fact has ended.
      lost = 200;
    }
    await Promise.all(working);
    // All at once, each with a connection: none begins to end before the last has begun.
    const together = 8;
    const all = gate();
    const inside = new Set<number>();
    const join = async (own: number): Promise<void> => {
      for (;;) {
        try {
          return await store.transaction(async (tx) => {
            await run(tx, "SELECT 1");
            if (inside.add(own).size === together) all.open();
            await all.opened;
          });
        } catch {
          // An idle connection was lost, and this call is the first to notice.
        }
      }
    };
    await Promise.all(Array.from({ length: together }, (_, own) => join(own)));
  });

  fact("a transaction aborted while it waits for a connection gives that connection back", async ({ store }) => {
    // More than any pool has. As many calls wait as there are connections; if each leaked one, none would be left.
    const many = 24;
    const begun = gate();
    const held = gate();
    const holders = Array.from({ length: many }, () =>
      store.transaction(async (tx) => {
        await run(tx, "SELECT 1");
        begun.open();
        await held.opened;
      }),
    );
    await begun.opened;
    const stop = new AbortController();
    const reason = new Error("no time left");
    let worked = 0;
    const waiting = Array.from({ length: many }, () =>
      store.transaction(async () => void worked++, { signal: stop.signal }),
    );
    stop.abort(reason);
    for (const each of waiting) await expect(each).rejects.toBe(reason);
    held.open();
    await Promise.all(holders);
    expect(worked).toBe(0);
    expect(await store.transaction(async (tx) => void (await run(tx, "SELECT 1")))).toBeUndefined();
  });

  describe("outbox.publish without a handle", () => {
    fact("joins the surrounding transaction of the store", async (harness) => {
      const { store } = harness;
      const outbox = outboxOf(store);
      await store.transaction(async (tx) => {
        await order(tx, "o1");
        await outbox.publish(Placed, { order: "o1" }, { id: "m1" });
        await outbox.publishAll([Placed.message({ order: "o1" }, { id: "m2" })]);
      });
      const failing = store.transaction(async () => {
        await outbox.publish(Placed, { order: "o1" });
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect(await committed(harness)).toEqual({ orders: ["o1"], messages: ["m1", "m2"] });
    });

    fact("fails outside of one, and in one that the store has not opened", async (harness) => {
      const outbox = outboxOf(harness.store);
      const missing = { code: "transaction-missing" };
      await expect(outbox.publish(Placed, { order: "o1" })).rejects.toMatchObject(missing);
      await begin(async () => {
        await expect(outbox.publish(Placed, { order: "o1" })).rejects.toMatchObject(missing);
      });
      expect(await committed(harness)).toEqual(nothing);
    });
  });
}

/** Waits for this many turns of the microtask queue; none if below one. */
async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await Promise.resolve();
}
