import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeOn, describeOnEach } from "@postbox/testkit/servers";
import { connect } from "amqplib";
import { afterAll, beforeAll, expect, it } from "vitest";

const folder = "examples/01-orders-and-billing";

describeOnEach("rabbitmq", ({ url }) => {
  const shop = `shop-${randomBytes(4).toString("hex")}`;

  beforeAll(build);
  afterAll(async () => {
    const connection = await connect(url);
    const channel = await connection.createChannel();
    for (const service of ["orders", "billing"]) {
      for (const end of ["", ".parked"]) await channel.deleteQueue(`${shop}.${service}${end}`);
      await channel.deleteExchange(`${shop}.${service}.v1`);
    }
    await connection.close();
  });

  it("the demo loses nothing and doubles nothing over RabbitMQ", { timeout: 120_000 }, () => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [`${folder}/dist/main.js`, "--orders", "50", "--broker", url],
      { encoding: "utf8", env: { ...process.env, DEMO_SHOP: shop }, timeout: 100_000 },
    );
    expect(stderr).toBe("");
    expectNothingLost(stdout);
    expect(status).toBe(0);
  });
});

describeOnEach("mariadb", ({ url }) => {
  beforeAll(build);

  it("the demo loses nothing and doubles nothing on MariaDB", { timeout: 120_000 }, () => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [`${folder}/dist/main.js`, "--orders", "50", "--database", url],
      { encoding: "utf8", timeout: 100_000 },
    );
    expect(stderr).toBe("");
    expectNothingLost(stdout);
    expect(status).toBe(0);
  });
});

describeOnEach("kafka", ({ url }) => {
  const shop = `shop-${randomBytes(4).toString("hex")}`;

  beforeAll(build);

  it("the demo loses nothing and doubles nothing over Kafka", { timeout: 120_000 }, () => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [`${folder}/dist/main.js`, "--orders", "50", "--broker", url],
      { encoding: "utf8", env: { ...process.env, DEMO_SHOP: shop }, timeout: 100_000 },
    );
    expect(stderr).toBe("");
    expectNothingLost(stdout);
    expect(status).toBe(0);
  });
});

describeOn({ title: "SQLite" }, () => {
  beforeAll(build);

  it("the demo loses nothing and doubles nothing on SQLite", { timeout: 120_000 }, () => {
    const files = mkdtempSync(join(tmpdir(), "postbox-demo-"));
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [`${folder}/dist/main.js`, "--orders", "50", "--database", `sqlite:${files}`],
      { encoding: "utf8", timeout: 100_000 },
    );
    rmSync(files, { recursive: true });
    expect(stderr).toBe("");
    expectNothingLost(stdout);
    expect(status).toBe(0);
  });
});

/** The demo as it is compiled. */
function build(): void {
  execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-b", folder], { stdio: "inherit" });
}

function expectNothingLost(output: string): void {
  expect(figuresIn(output)).toMatchObject({
    "orders attempted": 50,
    "orders committed": 40,
    "orders rolled back": 10,
    "messages sent": 40,
    "handled once": 40,
    "relays that stopped dead": 1,
    "handled twice": 0,
    "invoices of rolled-back orders": 0,
    "remembered by the inbox": 40,
    "orders that heard of their invoice": 40,
    parked: 0,
    lost: 0,
  });
  expect(figuresIn(output)["duplicates skipped"]).toBeGreaterThan(0);
}

/** The numbers of the final table, by row name. */
function figuresIn(output: string): Record<string, number> {
  const lines = output.matchAll(/^ {2}(\S.*?) {2,}(\d+) {2}\S/gm);
  return Object.fromEntries([...lines].map(([, name, figure]) => [name, Number(figure)]));
}
