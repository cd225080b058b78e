import { EntitySchema, MikroORM, type SqlEntityManager } from "@mikro-orm/postgresql";
import { testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { librarySuite } from "@postbox/testkit/suites";
import pg from "pg";
import type { Store } from "postbox";
import { mikroOrm } from "postbox/mikro-orm";
import { postgresStore } from "postbox/postgres";
import { afterAll, describe, expect, expectTypeOf, it } from "vitest";

const rightCall = "em.transactional(async (em) => …)";
const Order = new EntitySchema<{ id: string }>({
  name: "Order",
  properties: { id: { type: "string", primary: true } },
});

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const pool = connect();
  const orm = MikroORM.initSync({ clientUrl: url, entities: [Order], pool: { min: 0, max: 12 } });
  type Manager = typeof orm.em;
  afterAll(async () => {
    await Promise.all([orm.close(), pool.end()]);
  });

  librarySuite<Manager>({
    name: "mikro-orm",
    rightCall,
    connect,
    transactions: () => mikroOrm(orm.em),
    impostors: () => [orm.em, orm.em.fork(), orm, pool],
    begin: (work) => orm.em.fork().transactional(work),
    nested: (em, work) => em.transactional(work),
    run: (em, statement) => em.execute(statement),
  });

  describe("a store with mikro-orm", () => {
    const store = postgresStore({ pool, transactions: mikroOrm(orm.em) });
    const message = testMessage("m1");

    it("says which database it is on", () => {
      expect(orm.em.getPlatform().constructor.name).toBe("PostgreSqlPlatform");
    });

    it("has the type of the orm's own entity managers", async () => {
      expectTypeOf(store).toExtend<Store<Manager>>();
      expectTypeOf<Manager>().toExtend<SqlEntityManager>();
      // The compiler cannot tell it from a transaction's entity manager: both have the same type.
      await expect(store.append(orm.em, "outbox", [message])).rejects.toThrow("is in no transaction");
      // @ts-expect-error the orm is not an entity manager
      await expect(store.append(orm, "outbox", [message])).rejects.toThrow(rightCall);
      // @ts-expect-error the pool is not an entity manager
      await expect(store.append(pool, "outbox", [message])).rejects.toThrow(rightCall);
    });

    it("sends any value as it is, and reads question marks as such", async () => {
      const { begin, executor } = mikroOrm(orm.em);
      const texts = ["?", "??", "\\?", "$1", "it's", '{"a":"\\"?\\\\"}', "\\x00"];
      const bytes = Uint8Array.of(0, 39, 63, 92, 255);
      await begin(async (em) => {
        const text = `SELECT $1::json AS texts, $2::bytea AS bytes, $3::text AS none, $4::double precision AS "number?"`;
        const { rows } = await executor(em)(text, [JSON.stringify(texts), bytes, null, -1.5]);
        expect(rows).toEqual([{ texts, bytes: Buffer.from(bytes), none: null, "number?": -1.5 }]);
        expect((await executor(em)("SELECT '?' AS mark", [])).rows).toEqual([{ mark: "?" }]);
      });
    });
  });
});
