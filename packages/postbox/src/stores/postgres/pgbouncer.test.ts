import { describeOnEach, postgresStoreFeatures, postgresTestData } from "@postbox/testkit/servers";
import { crashSuite, inboxSuite, relaySuite, storeSuite } from "@postbox/testkit/suites";
import pg from "pg";
import { afterAll } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";

// A pooler in transaction mode lends a session for one transaction at a time. State that a session keeps is lost, or
// belongs to another client.
describeOnEach("pgbouncer", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const data = postgresTestData({ connect, transactions: pgTransactions, impostors: (pool) => [pool] });
  // Notifications do not work behind it without a 'directUrl'.
  const features = postgresStoreFeatures;
  const postgres = { name: "postgres through pgbouncer", features, create: data.create };
  storeSuite(postgres);
  relaySuite(postgres);
  inboxSuite(postgres);
  crashSuite(postgres);
  afterAll(data.drop);
});
