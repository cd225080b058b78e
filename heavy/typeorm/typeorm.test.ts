import { testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { librarySuite } from "@postbox/testkit/suites";
import pg from "pg";
import type { Store } from "postbox";
import { postgresStore } from "postbox/postgres";
import { typeorm } from "postbox/typeorm";
import { DataSource, type EntityManager } from "typeorm";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from "vitest";

const rightCall = "dataSource.transaction(async (manager) => …)";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const pool = connect();
  const dataSource = new DataSource({ type: "postgres", url, poolSize: 12 });
  beforeAll(async () => {
    await dataSource.initialize();
  });
  afterAll(async () => {
    await Promise.all([dataSource.destroy(), pool.end()]);
  });

  librarySuite<EntityManager>({
    name: "typeorm",
    rightCall,
    connect,
    transactions: () => typeorm(dataSource),
    impostors: () => [dataSource.manager, dataSource, dataSource.createQueryRunner().manager, pool],
    begin: (work) => dataSource.transaction(work),
    nested: (manager, work) => manager.transaction(work),
    run: (manager, statement) => manager.query(statement),
    client: ({ queryRunner }) =>
      (queryRunner as unknown as { readonly databaseConnection: pg.ClientBase }).databaseConnection,
  });

  describe("a store with typeorm", () => {
    const store = postgresStore({ pool, transactions: typeorm(dataSource) });
    const message = testMessage("m1");

    it("has the type of the data source's own transactions", async () => {
      expectTypeOf(store).toExtend<Store<EntityManager>>();
      expectTypeOf(store.append).parameter(0).toEqualTypeOf<EntityManager>();
      // The compiler cannot tell it from a transaction's manager: both have the same type.
      await expect(store.append(dataSource.manager, "outbox", [message])).rejects.toThrow(
        "dataSource.manager runs each",
      );
      // @ts-expect-error a data source is not an entity manager
      await expect(store.append(dataSource, "outbox", [message])).rejects.toThrow(rightCall);
      // @ts-expect-error the pool is not an entity manager
      await expect(store.append(pool, "outbox", [message])).rejects.toThrow(rightCall);
    });

    it("takes the manager of a transaction that was begun by hand, until it has ended", async () => {
      const { executor } = typeorm(dataSource);
      const runner = dataSource.createQueryRunner();
      await runner.connect();
      expect(() => executor(runner.manager)).toThrow("it has not begun, or has ended");
      await runner.startTransaction();
      const { rows } = await executor(runner.manager)("SELECT $1::text AS answer", ["open"]);
      expect(rows).toEqual([{ answer: "open" }]);
      await runner.rollbackTransaction();
      expect(() => executor(runner.manager)).toThrow("it has not begun, or has ended");
      await runner.release();
      expect(() => executor(runner.manager)).toThrow("it has not begun, or has ended");
    });
  });
});
