import { PGlite } from "@electric-sql/pglite";
import { createPgConfig } from "@electric-sql/pglite/node-postgres";
import {
  describeOn,
  describeOnEach,
  type PostgresTestDataOptions,
  postgresStoreFeatures,
  postgresTestData,
} from "@postbox/testkit/servers";
import { crashSuite, inboxSuite, relaySuite, type StoreFeatures, storeSuite } from "@postbox/testkit/suites";
import pg from "pg";
import { afterAll, describe } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  suite("pg", postgresStoreFeatures, { connect, transactions: pgTransactions, impostors: (pool) => [pool] });
});

// All clients share one connection: a second one would wait for ever.
describeOn({ title: "PGlite" }, () => {
  suite(
    "pg",
    { ...postgresStoreFeatures, concurrentTransactions: false, lateCommits: false, processes: false },
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
