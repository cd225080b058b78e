import { setTimeout as sleep } from "node:timers/promises";
import { type DisposableServer, disposable } from "@postbox/testkit/servers";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { isMariadbInstalled } from "../../packages/testkit/src/servers/recipes/mariadb.js";
import { BusyShop, disordered } from "./busy-shop.js";

/** `POSTBOX_TORTURE_KILLS` makes it longer. */
const kills = Number(process.env.POSTBOX_TORTURE_KILLS ?? 2);

describe.skipIf(!isMariadbInstalled())("a MariaDB that is killed under load", () => {
  let server: DisposableServer;
  let shop: BusyShop;
  beforeAll(async () => {
    server = await disposable("mariadb");
  });
  afterEach(() => shop.close());
  afterAll(() => server?.stop());

  it("loses no committed message, sends no other, and keeps the order of keys", async () => {
    shop = new BusyShop({ url: server.url, database: "shop", writers: 12, relays: 3 });
    await shop.open();
    const placing = shop.place(kills * 2_500 + 1_000);
    for (let kill = 0; kill < kills; kill++) {
      await sleep(700 + Math.random() * 600);
      await server.kill();
      await server.restart();
    }
    await placing;
    await expect.poll(() => shop.unsent(), { timeout: 60_000 }).toBe(0);
    // An append whose COMMIT lost its answer may be stored.
    const orders = await shop.orders();
    const sent = new Set(shop.sent.map(({ id }) => id));
    expect([...sent].sort()).toEqual([...orders].sort());
    expect(shop.errors.length).toBeGreaterThan(0);
    expect(shop.committed.length).toBeGreaterThan(100);
    expect(disordered(shop.committed, shop.sent)).toEqual([]);
  }, 300_000);
});
