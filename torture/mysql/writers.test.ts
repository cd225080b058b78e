import { randomBytes } from "node:crypto";
import { describeOnEach } from "@postbox/testkit/servers";
import { afterEach, expect, it } from "vitest";
import { BusyShop, disordered } from "./busy-shop.js";

/** `POSTBOX_TORTURE_MS` makes it longer. */
const placingMs = Number(process.env.POSTBOX_TORTURE_MS ?? 3_000);

describeOnEach("mariadb", ({ url }) => {
  let shop: BusyShop;
  afterEach(() => shop.close());

  it("overlapping writers lose nothing, double nothing and see no deadlock; keys keep their order", async () => {
    const database = `test_${randomBytes(6).toString("hex")}`;
    shop = new BusyShop({ url, database, writers: 50, relays: 4 });
    await shop.open();
    await shop.place(placingMs);
    await expect.poll(() => shop.unsent(), { timeout: 30_000 }).toBe(0);
    expect(shop.errors).toEqual([]);
    expect(shop.committed.length).toBeGreaterThan(200);
    expect(shop.sent.map(({ id }) => id).sort()).toEqual(shop.committed.map(({ id }) => id).sort());
    expect(disordered(shop.committed, shop.sent)).toEqual([]);
  }, 180_000);
});
