import { testMessage } from "@postbox/testkit";
import { memoryStore } from "postbox/memory";
import { expect, it } from "vitest";

it("a list shows each message once, though it moves meanwhile", async () => {
  for (let steps = 0; steps < 12; steps++) {
    const store = memoryStore();
    const box = store.box("outbox");
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("m")]));
    await box.renew("relay", 60_000, "key");
    const lanes = await box.own("relay", 64);
    const { rows } = await box.read(lanes.map(({ lane }) => ({ lane, limit: 1 })));
    const park = rows.map((row) => ({ row, to: "parked", attempts: 1, error: "never" }) as const);
    await box.settle(lanes, park);
    const listing = store.admin.list();
    for (let step = 0; step < steps; step++) await undefined;
    const retrying = store.admin.retry({ ids: ["m"] }, { by: "ann" });
    expect((await listing).messages).toHaveLength(1);
    await retrying;
  }
});
