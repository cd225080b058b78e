import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { describeOnEach } from "@postbox/testkit/servers";
import { connect } from "amqplib";
import { afterAll, beforeAll, expect, it } from "vitest";

const folder = "examples/01-orders-and-billing";

describeOnEach("rabbitmq", ({ url }) => {
  const shop = `shop-${randomBytes(4).toString("hex")}`;

  // The test runs the compiled demo.
  beforeAll(() => {
    execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-b", folder], { stdio: "inherit" });
  });
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
    expect(figuresIn(stdout)).toMatchObject({
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
    expect(figuresIn(stdout)["duplicates skipped"]).toBeGreaterThan(0);
    expect(status).toBe(0);
  });
});

/** The numbers of the final table, by row name. */
function figuresIn(output: string): Record<string, number> {
  const lines = output.matchAll(/^ {2}(\S.*?) {2,}(\d+) {2}\S/gm);
  return Object.fromEntries([...lines].map(([, name, figure]) => [name, Number(figure)]));
}
