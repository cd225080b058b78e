import { describeOnEach, mysqlStoreFeatures, mysqlTestData } from "@postbox/testkit/servers";
import { crashSuite, inboxSuite, relaySuite, storeSuite } from "@postbox/testkit/suites";
import { afterAll } from "vitest";
import { mysql2Transactions } from "../../transactions/mysql2.js";

describeOnEach("mariadb", ({ url }) => {
  const data = mysqlTestData({
    url,
    pool: { connectionLimit: 20 },
    transactions: mysql2Transactions,
    impostors: (pool) => [pool, pool.pool],
  });
  const mysql = { name: "mysql", features: mysqlStoreFeatures, create: data.create };
  storeSuite(mysql);
  relaySuite(mysql);
  inboxSuite(mysql);
  crashSuite(mysql);
  afterAll(data.drop);
});
