import { describeOnEach } from "@postbox/testkit";
import { expect, it } from "vitest";
import { rabbitmqStages } from "../../../fixtures/rabbitmq-stage.js";
import { rabbitmqParkingLot } from "./index.js";

describeOnEach("rabbitmq", ({ url }) => {
  const { receiving } = rabbitmqStages(url);

  it("gets back what was parked, as if it had never been tried, and no more than was asked for", async () => {
    const { publish, next, queue, deliveries } = await receiving();
    for (const id of ["m1", "m2", "m3"]) {
      publish(id);
      await (await next()).park(new Error("no such order"));
    }
    const lot = rabbitmqParkingLot({ url, queue });
    expect(await lot.count()).toBe(3);
    expect(await lot.replay({ limit: 2 })).toBe(2);
    const again = [await next(), await next()];
    expect(again.map(({ message, attempt }) => [message.id, message.headers, attempt])).toEqual([
      ["m1", {}, 1],
      ["m2", {}, 1],
    ]);
    // What fails again while it is replayed is not replayed once more.
    await again[0]?.park(new Error("still no such order"));
    expect(await lot.replay({ limit: 100 })).toBe(2);
    expect([(await next()).message.id, (await next()).message.id].sort()).toEqual(["m1", "m3"]);
    expect([await lot.count(), deliveries.length]).toEqual([0, 0]);
    await expect(lot.replay({ limit: 0 })).rejects.toMatchObject({ code: "option-invalid" });
  });
});
