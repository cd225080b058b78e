import { gate } from "@postbox/testkit";
import { cuttable, describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { drizzle as drizzleOrm } from "drizzle-orm/node-postgres";
import { Kysely, PostgresDialect, sql } from "kysely";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it, type TestContext } from "vitest";
import type { Store, TransactionLibrary } from "../store.js";
import { postgresStore } from "../stores/postgres/postgres-store.js";
import { drizzle } from "./drizzle.js";
import { kysely } from "./kysely.js";
import { pgTransactions } from "./pg.js";

/*
 * A transaction whose connection no longer answers although it is not reported as lost. The handler's timeout must
 * still end it and free its place in the pool.
 */

type Library = "pg" | "drizzle" | "kysely";

function transactionsOf(library: Library, pool: pg.Pool): TransactionLibrary<unknown, "postgres"> {
  if (library === "pg") return pgTransactions(pool);
  if (library === "drizzle") return drizzle(drizzleOrm(pool));
  return kysely(new Kysely<object>({ dialect: new PostgresDialect({ pool }) }));
}

async function run(library: Library, tx: unknown, statement: string): Promise<void> {
  if (library === "pg") await (tx as pg.ClientBase).query(statement);
  else if (library === "drizzle") await (tx as { execute(text: string): Promise<unknown> }).execute(statement);
  else await sql.raw(statement).execute(tx as Kysely<object>);
}

describeOnEach("postgres", ({ url }) => {
  const data = postgresTestData({
    connect: () => new pg.Pool({ connectionString: url, max: 4 }),
    transactions: pgTransactions,
  });
  beforeAll(async () => void (await data.create()));
  afterAll(data.drop);

  describe.each(["pg", "drizzle", "kysely"] as const)(
    "a transaction of %s on a connection that swallows everything",
    (library) => {
      async function open({ onTestFinished }: TestContext) {
        const way = await cuttable(url);
        const pool = new pg.Pool({ connectionString: way.url, max: 1 });
        pool.on("error", () => {});
        const store: Store<unknown> = postgresStore({
          pool,
          schema: data.schema,
          transactions: transactionsOf(library, pool),
        });
        const select = () => store.transaction((tx) => run(library, tx, "SELECT 1").then(() => "answered"));
        await select();
        const giveUp = new AbortController();
        onTestFinished(() => way.close());
        return {
          store,
          signal: giveUp.signal,
          swallow: () => way.swallow(),
          giveUp: () => giveUp.abort(new Error("enough")),
          async placeIsFree() {
            way.mend();
            expect(await select()).toBe("answered");
          },
        };
      }

      // Kysely exposes its connection only after BEGIN was answered.
      it.skipIf(library === "kysely").concurrent("ends before its work has begun", async (context) => {
        const { store, signal, swallow, giveUp, placeIsFree } = await open(context);
        swallow();
        const transaction = store.transaction(async () => expect.fail("nothing was answered"), { signal });
        giveUp();
        await expect(transaction).rejects.toThrow("enough");
        await placeIsFree();
      });

      it.concurrent("ends while its work waits for an answer", async (context) => {
        const { store, signal, swallow, giveUp, placeIsFree } = await open(context);
        const asks = gate();
        const transaction = store.transaction(
          async (tx) => {
            await run(library, tx, "SELECT 1");
            swallow();
            asks.open();
            await run(library, tx, "SELECT 2");
          },
          { signal },
        );
        await asks.opened;
        giveUp();
        await expect(transaction).rejects.toThrow("enough");
        await placeIsFree();
      });

      it.concurrent("ends at its COMMIT", async (context) => {
        const { store, signal, swallow, giveUp, placeIsFree } = await open(context);
        const returns = gate();
        const transaction = store.transaction(
          async (tx) => {
            await run(library, tx, "SELECT 1");
            swallow();
            returns.open();
          },
          { signal },
        );
        await returns.opened;
        giveUp();
        await expect(transaction).rejects.toThrow("enough");
        await placeIsFree();
      });
    },
  );
});
