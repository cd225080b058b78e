import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { defineEvent } from "./define-event.js";

const OrderPlaced = defineEvent({
  type: "shop.orders.v1.OrderPlaced",
  schema: z.object({ orderId: z.string(), items: z.array(z.object({ price: z.number() })).default([]) }),
  key: (order) => order.orderId,
  version: "2",
});

describe("defineEvent", () => {
  it("derives topic and content type from the type", () => {
    expect(OrderPlaced).toMatchObject({ topic: "shop.orders.v1", contentType: "application/json", version: "2" });
  });

  it("returns what the schema returned, not what it was given", async () => {
    const given = { orderId: "1", unknown: true };
    expect(await OrderPlaced.validate(given)).toEqual({ orderId: "1", items: [] });
    expect(given).toEqual({ orderId: "1", unknown: true });
  });

  it("says where the data is wrong", async () => {
    const refusal = OrderPlaced.validate({ orderId: "1", items: [{ price: 1 }, { price: "2" }] });
    await expect(refusal).rejects.toMatchObject({ code: "data-invalid", path: "data.items[1].price" });
    await expect(refusal).rejects.toThrow("shop.orders.v1.OrderPlaced: data.items[1].price");
  });

  it("works with any Standard Schema, asynchronous ones too", async () => {
    const check = v.checkAsync<string, string>(async (id) => id !== "", "must not be empty");
    const schema = v.objectAsync({ id: v.pipeAsync(v.string(), check) });
    const Event = defineEvent({ type: "a.B", schema });
    expect(await Event.validate({ id: "1" })).toEqual({ id: "1" });
    await expect(Event.validate({ id: "" })).rejects.toThrow("data.id: must not be empty");
  });

  it("passes on the error of a schema that fails by itself as it is", async () => {
    const broken = defineEvent({
      type: "a.B",
      schema: { "~standard": { version: 1, vendor: "test", validate: () => Promise.reject(new Error("lookup down")) } },
    });
    await expect(broken.validate({})).rejects.toThrow(/^lookup down$/);
  });

  it("refuses a definition without a type or without a schema", () => {
    const schema = z.string();
    expect(() => defineEvent({ schema } as never)).toThrow(expect.objectContaining({ code: "event-invalid" }));
    expect(() => defineEvent({ type: "", schema })).toThrow("option 'type' must be a non-empty string");
    expect(() => defineEvent({ type: "a.B", schema, topics: "a" } as never)).toThrow("did you mean 'topic'?");
    expect(() => defineEvent({ type: "a.B", schema: {} as never })).toThrow("no Standard Schema");
  });
});
