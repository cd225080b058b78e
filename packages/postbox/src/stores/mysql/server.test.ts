import { expect, it } from "vitest";
import { serverOf } from "./server.js";

it("tells servers apart by their version", () => {
  expect(serverOf("10.11.19-MariaDB-0+deb12u1", 1024)).toMatchObject({ flavor: "mariadb", version: "10.11.19" });
  expect(serverOf("5.5.5-10.6.0-MariaDB-log", 1024)).toMatchObject({ flavor: "mariadb", version: "10.6.0" });
  expect(serverOf("8.0.17", 1024)).toMatchObject({ flavor: "mysql", version: "8.0.17", hasDirtyReads: true });
  expect(serverOf("9.7.4-1", 1024)).toMatchObject({ flavor: "mysql", skipsLocked: true });
  expect(serverOf("8.0.11-TiDB-v8.5.1", 1024)).toMatchObject({
    flavor: "tidb",
    version: "8.5.1",
    hasDirtyReads: false,
  });
});

it("refuses a server that is too old, and says what it needs", () => {
  for (const [version, needed] of [
    ["10.5.29-MariaDB", "MariaDB 10.6.0"],
    ["5.5.5-10.4.34-MariaDB-1:10.4.34", "MariaDB 10.6.0"],
    ["8.0.16", "MySQL 8.0.17"],
    ["5.7.44-log", "MySQL 8.0.17"],
    ["5.7.25-TiDB-v6.5.0", "TiDB 7.4.0"],
    ["unknown", "MySQL 8.0.17"],
  ] as const) {
    expect(() => serverOf(version, 1024)).toThrow(`server-unsupported`);
    expect(() => serverOf(version, 1024)).toThrow(`the server says that it is ${version}, and Postbox needs ${needed}`);
  }
});
