import { telemetryLog } from "@postbox/testkit";
import { createPublisher, createRouter } from "postbox";
import { memoryBroker } from "postbox/memory";
import { expect, it } from "vitest";
import { z } from "zod";
import { defineEvent } from "./define-event.js";
import { upcastFrom } from "./upcast.js";
import { withUpcast } from "./with-upcast.js";

const V0 = defineEvent({ type: "shop.v0.Placed", schema: z.object({ no: z.number() }) });
const V1 = defineEvent({ type: "shop.v1.Placed", schema: z.object({ id: z.string() }) });
const V2 = defineEvent({
  type: "shop.v2.Placed",
  schema: z.object({ orderId: z.string(), by: z.string() }),
  key: ({ orderId }) => orderId,
  upcast: [upcastFrom("legacy.Placed", () => ({ orderId: "legacy", by: "V2" }))],
});

it("is the event, which takes older types beside those that it took before", async () => {
  const Taking = withUpcast(V2, [
    upcastFrom(V1, ({ id }) => ({ orderId: id, by: "v1" })),
    upcastFrom(V0, ({ no }) => ({ orderId: `${no}`, by: "v0" })),
  ]);
  const broker = memoryBroker();
  const log = telemetryLog();
  const got: unknown[] = [];
  const router = createRouter("b", { telemetry: log.telemetry }).on(Taking, ({ orderId, by }, { message }) => {
    got.push([message.type, message.key, orderId, by]);
  });
  router.start(broker.receiver());
  const publisher = createPublisher(broker.sender(), { source: "/test" });
  await publisher.publish(V0, { no: 7 });
  await publisher.publish(V1, { id: "8" });
  await publisher.publish(V2, { orderId: "9", by: "V2" });
  await publisher.publish(Taking, { orderId: "10", by: "Taking" });
  await publisher.publishAll([Taking.message({ orderId: "11", by: "a draft" })]);
  await publisher.send({ type: "legacy.Placed", data: Buffer.from("{}") });
  await log.until("delivery.acked", 6);
  await router.stop();
  expect(got.sort()).toEqual([
    ["legacy.Placed", undefined, "legacy", "V2"],
    ["shop.v0.Placed", undefined, "7", "v0"],
    ["shop.v1.Placed", undefined, "8", "v1"],
    ["shop.v2.Placed", "10", "10", "Taking"],
    ["shop.v2.Placed", "11", "11", "a draft"],
    ["shop.v2.Placed", "9", "9", "V2"],
  ]);
  expect(V2.upcasts.map(({ type }) => type)).toEqual(["legacy.Placed"]);
});

it("goes before what the event said of the same type", async () => {
  const Taking = withUpcast(V2, [upcastFrom("legacy.Placed", () => ({ orderId: "x", by: "withUpcast" }))]);
  expect(Taking.upcasts.map(({ type }) => type)).toEqual(["legacy.Placed"]);
  expect(await Taking.upcasts[0]?.["~read"]({})).toEqual({ orderId: "x", by: "withUpcast" });
});

it("refuses what defineEvent refuses, and what is no event", () => {
  const up = () => ({ orderId: "1", by: "x" });
  expect(() => withUpcast(V2, [upcastFrom(V2, up)])).toThrow("[event-invalid] shop.v2.Placed upcasts from itself");
  expect(() => withUpcast(V2, [up] as never)).toThrow("'upcast' of shop.v2.Placed takes what upcastFrom returns");
  for (const wrong of [() => withUpcast({} as never, []), () => withUpcast(V2, upcastFrom(V1, up) as never)]) {
    expect(wrong).toThrow("withUpcast(event, upcast) takes an event, and an array of what upcastFrom returns");
  }
});
