import {
  crashSuite,
  describeOnEach,
  postgresStoreFeatures,
  postgresTestData,
  relaySuite,
  storeSuite,
} from "@postbox/testkit";
import pg from "pg";
import { afterAll } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";

// A pooler in transaction mode lends a session for one transaction at a time: what a session keeps is lost or, worse,
// somebody else's.
describeOnEach("pgbouncer", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const data = postgresTestData({ connect, transactions: pgTransactions, impostors: (pool) => [pool] });
  const postgres = { name: "postgres through pgbouncer", features: postgresStoreFeatures, create: data.create };
  storeSuite(postgres);
  relaySuite(postgres);
  crashSuite(postgres);
  afterAll(data.drop);
});
