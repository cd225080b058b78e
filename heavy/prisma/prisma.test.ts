import { testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { librarySuite } from "@postbox/testkit/suites";
import { PrismaPg } from "@prisma/adapter-pg";
import pg from "pg";
import type { Store } from "postbox";
import { postgresStore } from "postbox/postgres";
import { prisma } from "postbox/prisma";
import { afterAll, describe, expect, expectTypeOf, it } from "vitest";
import { type Prisma, PrismaClient } from "./generated/client.js";

const rightCall = "prisma.$transaction(async (tx) => …)";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const pool = connect();
  const client = new PrismaClient({ adapter: new PrismaPg({ connectionString: url, max: 12 }) });
  afterAll(async () => {
    await Promise.all([client.$disconnect(), pool.end()]);
  });

  librarySuite<Prisma.TransactionClient>({
    name: "prisma",
    rightCall,
    connect,
    transactions: () => prisma(client),
    impostors: () => [client, pool],
    begin: (work) => client.$transaction(work),
    nested: (tx, work) => tx.$transaction(work),
    run: (tx, statement) => tx.$executeRawUnsafe(statement),
  });

  describe("a store with prisma", () => {
    const store = postgresStore({ pool, transactions: prisma(client) });
    const message = testMessage("m1");

    it("has the type of the client's own transactions", async () => {
      expectTypeOf(store).toExtend<Store<Prisma.TransactionClient>>();
      expectTypeOf<Prisma.TransactionClient>().toExtend<Parameters<typeof store.append>[0]>();
      await store.transaction(async (tx) => {
        expectTypeOf(tx.order.findFirst).toBeFunction();
      });
      // @ts-expect-error the client itself is not a transaction
      await expect(store.append(client, "outbox", [message])).rejects.toThrow("the client itself runs each statement");
      // @ts-expect-error the pool is not a transaction
      await expect(store.append(pool, "outbox", [message])).rejects.toThrow(rightCall);
    });

    it("says which database it is on", () => {
      expect(client).toMatchObject({ _activeProvider: "postgresql" });
    });

    it("sends any value as it is", async () => {
      const { begin, executor } = prisma(client);
      const texts = ["?", "$1", "it's", '{"a":"\\"?\\\\"}'];
      const bytes = Uint8Array.of(0, 39, 63, 92, 255);
      await begin(async (tx) => {
        const text = `SELECT $1::json AS texts, $2::bytea AS bytes, $3::text AS none, $4::double precision AS number`;
        const { rows } = await executor(tx)(text, [JSON.stringify(texts), bytes, null, -1.5]);
        expect(rows).toEqual([{ texts, bytes, none: null, number: -1.5 }]);
      });
    });
  });
});
