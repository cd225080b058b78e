import { PGlite } from "@electric-sql/pglite";
import { createPgConfig } from "@electric-sql/pglite/node-postgres";
import {
  crashSuite,
  describeOn,
  describeOnEach,
  inboxSuite,
  type PostgresTestDataOptions,
  postgresStoreFeatures,
  postgresTestData,
  relaySuite,
  type StoreFeatures,
  storeSuite,
} from "@postbox/testkit";
import { drizzle as drizzleOrm } from "drizzle-orm/node-postgres";
import pg from "pg";
import { afterAll, describe } from "vitest";
import { drizzle } from "../../transactions/drizzle.js";
import { pgTransactions } from "../../transactions/pg.js";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  suite("pg", postgresStoreFeatures, { connect, transactions: pgTransactions, impostors: (pool) => [pool] });
  suite("drizzle", postgresStoreFeatures, {
    connect,
    transactions: (pool) => drizzle(drizzleOrm(pool)),
    impostors: (pool) => [drizzleOrm(pool)],
  });
});

// One connection for everybody: what needed a second one would wait for ever. Not with Drizzle: through PGlite's bridge
// to `pg`, a statement of Drizzle's that has parameters never gets an answer.
describeOn({ title: "PGlite" }, () => {
  suite(
    "pg",
    { ...postgresStoreFeatures, concurrentTransactions: false, processes: false, hints: false },
    {
      connect: () => new pg.Pool(createPgConfig(new PGlite())),
      transactions: pgTransactions,
      impostors: (pool) => [pool],
    },
  );
});

function suite<Tx>(library: string, features: StoreFeatures, options: PostgresTestDataOptions<Tx>): void {
  describe(`with ${library}`, () => {
    const data = postgresTestData(options);
    const postgres = { name: "postgres", features, create: data.create };
    storeSuite(postgres);
    relaySuite(postgres);
    inboxSuite(postgres);
    crashSuite(postgres);
    afterAll(data.drop);
  });
}
