import { recordingSender } from "@postbox/testkit";
import { type } from "arktype";
import { createPublisher, type PostboxError } from "postbox";
import Type, { type Static, type TSchema } from "typebox";
import { Compile } from "typebox/compile";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { type DataIn, type DataOut, defineEvent } from "./define-event.js";
import type { StandardSchema } from "./standard-schema.js";

const OrderPlaced = defineEvent({
  type: "shop.orders.v1.OrderPlaced",
  schema: z.object({ orderId: z.string(), items: z.array(z.object({ price: z.number() })).default([]) }),
  key: (order) => order.orderId,
  version: "2",
});

type Order = { id: string; lines: { count: number }[] };

/** A Standard Schema from a TypeBox type, since TypeBox provides none. */
function fromTypeBox<T extends TSchema>(schema: T): StandardSchema<Static<T>> {
  const compiled = Compile(schema);
  const steps = (pointer: string) => pointer.split("/").slice(1);
  return {
    "~standard": {
      version: 1,
      vendor: "typebox",
      validate: (value) =>
        compiled.Check(value)
          ? { value }
          : {
              issues: compiled.Errors(value).map(({ instancePath, message }) => ({
                message,
                path: steps(instancePath).map((step) => (/^\d+$/.test(step) ? Number(step) : step)),
              })),
            },
      // A TypeBox type is itself a JSON Schema.
      jsonSchema: { input: () => schema, output: () => schema },
    },
  };
}

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

  it.each([
    ["zod", z.object({ id: z.string(), lines: z.array(z.object({ count: z.number() })) })],
    ["valibot", v.object({ id: v.string(), lines: v.array(v.object({ count: v.number() })) })],
    ["arktype", type({ id: "string", lines: type({ count: "number" }).array() })],
    [
      "typebox",
      fromTypeBox(Type.Object({ id: Type.String(), lines: Type.Array(Type.Object({ count: Type.Number() })) })),
    ],
  ])("takes a schema of %s, with its types and its paths", async (_, schema) => {
    const Event = defineEvent({ type: "a.B", schema: schema as StandardSchema<Order>, key: (order) => order.id });
    const order = { id: "1", lines: [{ count: 1 }, { count: 2 }] };
    expect(await Event.validate(order)).toEqual(order);
    expect(Event.keyOf(order)).toBe("1");
    const refusal = Event.validate({ id: "1", lines: [{ count: 1 }, { count: "2" }] });
    await expect(refusal).rejects.toMatchObject({ code: "data-invalid", path: "data.lines[1].count" });
  });

  it("infers what each library says", () => {
    const Ark = defineEvent({ type: "a.B", schema: type({ id: "string", "note?": "string" }), key: ({ id }) => id });
    const Box = defineEvent({
      type: "a.B",
      schema: fromTypeBox(Type.Object({ id: Type.String() })),
      key: ({ id }) => id,
    });
    const data: [DataIn<typeof Ark>, DataOut<typeof Ark>, DataIn<typeof Box>] = [
      { id: "1" },
      { id: "1", note: "n" },
      { id: "1" },
    ];
    // @ts-expect-error: id must be a string
    const wrong: DataIn<typeof Box> = { id: 1 };
    // @ts-expect-error: a Date does not survive JSON
    defineEvent({ type: "a.B", schema: type({ at: "Date" }) });
    expect([data, wrong]).toBeDefined();
  });

  it("passes on the error of a schema that fails by itself as it is", async () => {
    const broken = defineEvent({
      type: "a.B",
      schema: { "~standard": { version: 1, vendor: "test", validate: () => Promise.reject(new Error("lookup down")) } },
    });
    await expect(broken.validate({})).rejects.toThrow(/^lookup down$/);
  });

  it("whose 'key' throws is no message, and the error says which", () => {
    const Keyed = defineEvent({
      type: "a.B",
      schema: z.object({ id: z.string().optional() }),
      key: ({ id }) => (id as string).trim(),
    });
    expect(() => Keyed.keyOf({})).toThrow(
      expect.objectContaining({
        code: "message-invalid",
        path: "key",
        message: expect.stringContaining("a.B: its 'key' threw: "),
        cause: expect.any(TypeError),
      }),
    );
  });

  it("has no empty key", async () => {
    const Keyed = defineEvent({ type: "a.B", schema: z.object({ id: z.string() }), key: ({ id }) => id });
    const publisher = createPublisher(recordingSender(), { source: "/test" });
    const refusal = publisher.publish(Keyed, { id: "" });
    await expect(refusal).rejects.toMatchObject({ code: "message-invalid", path: "key" });
    await expect(refusal).rejects.toThrow("a.B: its key is empty; return undefined from 'key' if there is no key");
    await publisher.publish(Keyed, { id: "" }, { key: "given" });
  });

  it("names the first of many issues, each in few words", async () => {
    const Items = defineEvent({ type: "a.B", schema: z.object({ items: z.array(z.string()) }) });
    const refusal = Items.validate({ items: Array.from({ length: 4_000 }, () => 1) });
    await expect(refusal).rejects.toThrow(/data\.items\[4\]: [^;]*; and 3,995 more; the schema refuses this data$/);
    await expect(refusal).rejects.not.toThrow("data.items[5]");
    const issues = [{ message: "m".repeat(1_000_000), path: ["p".repeat(1_000_000)] }];
    const Long = defineEvent({
      type: "a.B",
      schema: { "~standard": { version: 1, vendor: "test", validate: () => ({ issues }) } },
    });
    const refused = async () => (await Long.validate({}).catch((thrown) => thrown)) as PostboxError;
    const error = await refused();
    expect(error.message).toMatch(/: data\.p+…: m+…; the schema/);
    expect(error.message.length).toBeLessThan(600);
    expect(error.path).toMatch(/^data\.p{194}…$/);
    const many = [{ message: "m", path: Array.from({ length: 100_000 }, () => "p") }];
    issues.splice(0, 1, ...many);
    expect((await refused()).path).toMatch(/^data(\.p)+.?…$/);
  });

  it("travels as the first of its own codecs does, unless it says otherwise", () => {
    const codec = { contentType: "text/x-line", encode: (data: string) => Buffer.from(data), decode: String };
    const options = { type: "a.B", schema: z.string() } as const;
    const own = [codec];
    const Line = defineEvent({ ...options, codecs: own });
    own.pop();
    expect(Line).toMatchObject({ contentType: "text/x-line", codecs: [codec] });
    expect(defineEvent({ ...options, codecs: [codec], contentType: "text/plain" }).contentType).toBe("text/plain");
    expect(defineEvent({ ...options, codecs: [] }).contentType).toBe("application/json");
    for (const codecs of [codec, [{}], [{ ...codec, encode: undefined }]]) {
      expect(() => defineEvent({ ...options, codecs } as never)).toThrow("option 'codecs' must be an array of codecs");
    }
  });

  it("refuses a definition without a type or without a schema", () => {
    const schema = z.string();
    expect(() => defineEvent({ schema } as never)).toThrow(expect.objectContaining({ code: "event-invalid" }));
    expect(() => defineEvent({ type: "", schema })).toThrow("option 'type' must be a non-empty string");
    expect(() => defineEvent({ type: "a.B", schema, topics: "a" } as never)).toThrow("did you mean 'topic'?");
    expect(() => defineEvent({ type: "a.B", schema: {} as never })).toThrow("no Standard Schema");
    expect(() => defineEvent({ type: "a.B", schema, docs: { deprecated: true } as never })).toThrow(
      "option 'docs' must be",
    );
    expect(() => defineEvent({ type: "a.B", schema, jsonSchema: "x" as never })).toThrow("option 'jsonSchema' must be");
  });
});
