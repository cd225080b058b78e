import { disposable, type MysqlTestData, mysqlStoreFeatures, mysqlTestData } from "@postbox/testkit/servers";
import { crashSuite, type StoreHarness, storeSuite } from "@postbox/testkit/suites";
import type { Connection } from "mysql2/promise";
import { mysql2Transactions } from "postbox/mysql";
import { afterAll, beforeAll, describe } from "vitest";
import { isMariadbInstalled } from "../../packages/testkit/src/servers/recipes/mariadb.js";

/*
 * A MariaDB that says it is TiDB: the store then uses no dirty read, no shared lock and no SKIP LOCKED. TiDB itself
 * does not run here.
 */
describe.skipIf(!isMariadbInstalled())("the statements for TiDB", () => {
  let data: MysqlTestData<Connection>;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    const server = await disposable("mariadb", "--version=8.0.11-TiDB-v8.5.1");
    stop = () => server.stop();
    data = mysqlTestData({ url: server.url, pool: { connectionLimit: 20 }, transactions: mysql2Transactions });
  });
  afterAll(async () => {
    await data?.drop();
    await stop?.();
  });

  // Nothing shows who is still writing, so every read supposes writers, and a late commit is sent late. The facts of
  // relays expect it in its place, so they are not run.
  const features = { ...mysqlStoreFeatures, lateCommits: false };
  const tidb = { name: "mysql as TiDB", features, create: (): Promise<StoreHarness<Connection>> => data.create() };
  storeSuite(tidb);
  crashSuite(tidb);
});
