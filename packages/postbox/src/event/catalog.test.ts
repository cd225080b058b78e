import specs from "@asyncapi/specs";
import { recordingSender } from "@postbox/testkit";
import { toJsonSchema, toStandardJsonSchema } from "@valibot/to-json-schema";
import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import { type } from "arktype";
import fc from "fast-check";
import { createPublisher, type Message } from "postbox";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { toAmqp } from "../transports/rabbitmq/amqp-message.js";
import { defineCatalog } from "./catalog.js";
import { defineEvent } from "./define-event.js";

// The AsyncAPI schema bundles its own meta-schema.
const validAsyncApi = new Ajv({ strict: false, validateFormats: false, meta: false, validateSchema: false }).compile(
  specs.schemas["3.0.0"],
);

/** Validates the document against AsyncAPI's official JSON Schema. */
function expectAsyncApi(document: object): void {
  expect(validAsyncApi(document), JSON.stringify(validAsyncApi.errors)).toBe(true);
}

const money = z.object({ cents: z.int(), currency: z.enum(["EUR", "USD"]) }).meta({ id: "Money" });
const Placed = defineEvent({
  type: "shop.orders.v1.OrderPlaced",
  schema: z.object({
    orderId: z.string().min(1),
    total: money,
    shipping: money.optional(),
    channel: z.string().default("web"),
  }),
  key: (order) => order.orderId,
  version: "3",
  dataschema: "https://example.test/order-placed",
  docs: { title: "Order placed", summary: "Somebody ordered something.", "x-owner": "shop" },
});
const tree = z.object({
  name: z.string(),
  get parts() {
    return z.array(tree);
  },
});
const Moved = defineEvent({ type: "shop.stock.v1.PartsMoved", schema: tree, topic: "shop/stock" });
const Cancelled = defineEvent({
  type: "shop.orders.v1.OrderCancelled",
  schema: type({ orderId: "string", "reason?": "string" }),
});
const Paid = defineEvent({
  type: "shop.billing.v1.Paid",
  schema: toStandardJsonSchema(v.object({ orderId: v.string(), cents: v.pipe(v.number(), v.integer()) })),
});
const Uploaded = defineEvent({
  type: "shop.files.v1.Uploaded",
  schema: z.instanceof(Uint8Array),
  contentType: "application/octet-stream",
});
const all = [Placed, Moved, Cancelled, Paid, Uploaded] as const;
const info = { title: "Shop", version: "1.2.0" };

describe("a catalog", () => {
  it("publishes by type, with the types of each", async () => {
    const sender = recordingSender();
    const catalog = defineCatalog([Placed, { events: [Cancelled, Paid] as const }]);
    const publisher = catalog.publisher(createPublisher(sender, { source: "/shop" }));
    const { id } = await publisher.publish("shop.orders.v1.OrderCancelled", { orderId: "1" }, { subject: "s" });
    expect(sender.messages).toMatchObject([{ id, type: Cancelled.type, subject: "s" }]);
    // @ts-expect-error: no such type
    await expect(publisher.publish("shop.orders.v1.OrderCanceled", {})).rejects.toThrow(
      "[event-invalid] the catalog has no event 'shop.orders.v1.OrderCanceled'; did you mean " +
        "'shop.orders.v1.OrderCancelled'?",
    );
    // @ts-expect-error: data of another event
    await expect(publisher.publish("shop.billing.v1.Paid", { orderId: "1" })).rejects.toThrow("data.cents");
  });

  it("has its events by type, and in order", () => {
    const catalog = defineCatalog([Placed, { events: [Cancelled, Paid] as const }]);
    expect(catalog.events).toEqual([Paid, Cancelled, Placed]);
    expect(catalog.byType["shop.billing.v1.Paid"] satisfies typeof Paid).toBe(Paid);
    expect("toString" in catalog.byType).toBe(false);
    // @ts-expect-error: no such type
    expect(catalog.byType["shop.billing.v1.Lost"]).toBeUndefined();
  });

  it("has each type once, and nothing but events", () => {
    expect(defineCatalog([Placed, { events: [Placed, Paid] as const }]).events).toEqual([Paid, Placed]);
    const another = defineEvent({ type: Placed.type, schema: z.object({}) });
    expect(() => defineCatalog([Placed, { events: [another] }])).toThrow(
      "[event-invalid] defineCatalog: two definitions of the type shop.orders.v1.OrderPlaced; list one of them",
    );
    for (const wrong of [Placed, [{}], [undefined], [null], [{ events: ["a.B"] }], undefined]) {
      expect(() => defineCatalog(wrong as never)).toThrow("[event-invalid] defineCatalog takes an array of events");
    }
  });
});

describe("the AsyncAPI document", () => {
  it("is as it was", async () => {
    const document = defineCatalog(all).asyncApi({
      info,
      servers: { production: { host: "broker.example.test", protocol: "amqp" } },
      sends: [Placed.type, Cancelled.type, Moved.type, Uploaded.type],
      receives: [Paid.type, Cancelled.type],
    });
    expectAsyncApi(document);
    await expect(`${JSON.stringify(document, null, 2)}\n`).toMatchFileSnapshot("../../fixtures/async-api.json");
  });

  it("is the same in whatever order the events were given", () => {
    const text = JSON.stringify(defineCatalog(all).asyncApi({ info }));
    fc.assert(
      fc.property(fc.shuffledSubarray([...all], { minLength: all.length }), (events) => {
        expect(JSON.stringify(defineCatalog(events).asyncApi({ info }))).toBe(text);
      }),
      { numRuns: 20 },
    );
  });

  it("describes what is sent as it is returned, and what is only received as it is taken", () => {
    const catalog = defineCatalog([Placed]);
    const required = (options: object) =>
      catalog.asyncApi({ info, ...options }).components.schemas[Placed.type]?.required;
    expect(required({})).toContain("channel");
    expect(required({ receives: [Placed.type] })).not.toContain("channel");
    expect(required({ receives: [Placed.type], sends: [Placed.type] })).toContain("channel");
    const operations = (options: object) => Object.keys(catalog.asyncApi({ info, ...options }).operations);
    expect(operations({})).toEqual(["send.shop.orders.v1"]);
    expect(operations({ receives: [Placed.type] })).toEqual(["receive.shop.orders.v1"]);
    expect(operations({ sends: [] })).toEqual([]);
  });

  it("refers to nothing that it does not have", () => {
    const document = defineCatalog(all).asyncApi({ info });
    const refs = [...JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]*)"/g)].map(([, path]) => path as string);
    expect(refs).toContain("components/schemas/shop.orders.v1.OrderPlaced/definitions/Money");
    expect(refs).toContain("components/schemas/shop.stock.v1.PartsMoved");
    for (const path of refs) {
      const found = path
        .split("/")
        .reduce<unknown>((inner, step) => (inner as Record<string, unknown>)?.[step], document);
      expect(found, path).toBeDefined();
    }
  });

  it("has names of its own for types and topics that AsyncAPI has none for", () => {
    const schema = z.object({});
    const events = ["shop/orders placed", "shop:orders placed"].map((name) => defineEvent({ type: name, schema }));
    const document = defineCatalog(events).asyncApi({ info });
    expectAsyncApi(document);
    expect(Object.keys(document.components.messages)).toEqual(["shop_orders_placed", "shop_orders_placed_2"]);
    expect(document.channels.shop_orders_placed_2).toMatchObject({ address: "shop:orders placed" });
  });

  it("says the attributes as the transport does", () => {
    const document = defineCatalog([Placed]).asyncApi({ info, attributePrefix: "ce_" });
    expectAsyncApi(document);
    expect(document.components.messageTraits.CloudEvent).toMatchObject({
      headers: { required: ["ce_specversion", "ce_id", "ce_source", "ce_type"] },
      correlationId: { location: "$message.header#/ce_correlationid" },
    });
  });

  it("describes the headers that RabbitMQ gets", async () => {
    const { messages, messageTraits } = defineCatalog([Placed]).asyncApi({ info }).components;
    const own = messages[Placed.type]?.headers as { properties: object; required: string[] };
    const common = messageTraits.CloudEvent?.headers as { properties: object; required: string[] };
    // Merges the trait as AsyncAPI specifies: the message's own members win, and lists are replaced as a whole.
    const valid = new Ajv({ strict: false, validateFormats: false }).compile({
      ...common,
      ...own,
      properties: { ...common.properties, ...own.properties },
    });
    const sender = recordingSender();
    const publisher = createPublisher(sender, { source: "/shop", defaults: { extensions: { correlationid: "c" } } });
    await publisher.publish(Placed, { orderId: "1", total: { cents: 1, currency: "EUR" } }, { subject: "s" });
    const { headers } = toAmqp(sender.messages[0] as Message, "binary").properties;
    expect(valid(headers), JSON.stringify(valid.errors)).toBe(true);
    const attributes = Object.keys(headers).filter((name) => name.startsWith("cloudEvents:"));
    for (const name of attributes) expect({ ...common.properties }).toHaveProperty([name]);
    expect(own.required.length).toBe(6);
    for (const name of own.required) {
      expect(valid({ ...headers, [name]: undefined }), name).toBe(false);
      expect(valid({ ...headers, [name]: "" }), name).toBe(false);
    }
  });

  it("takes a payload in any language", () => {
    const proto = { schemaFormat: "application/vnd.google.protobuf;version=3", schema: 'syntax = "proto3";' };
    const document = defineCatalog([Uploaded, Placed]).asyncApi({
      info,
      payload: (event) => (event.type === Uploaded.type ? proto : undefined),
    });
    expectAsyncApi(document);
    expect(document.components.messages[Uploaded.type]?.payload).toEqual(proto);
    expect(Object.keys(document.components.schemas)).toEqual([Placed.type]);
  });

  it("says what is missing or wrong", () => {
    const catalog = defineCatalog(all);
    expect(() => catalog.asyncApi({} as never)).toThrow("option 'info' is missing");
    expect(() => catalog.asyncApi({ info: { title: "Shop" } } as never)).toThrow("asyncApi: info: option 'version'");
    expect(() => catalog.asyncApi({ info, sends: ["shop.orders.v1.OrderPlacd"] as never })).toThrow("did you mean");
    expect(() => catalog.asyncApi({ info, recieves: [] } as never)).toThrow("did you mean 'receives'?");
  });
});

describe("the JSON Schema document", () => {
  it("is as it was", async () => {
    const document = defineCatalog(all).jsonSchema({ id: "https://example.test/shop.json" });
    await expect(`${JSON.stringify(document, null, 2)}\n`).toMatchFileSnapshot("../../fixtures/json-schema.json");
  });

  it("is JSON Schema 2020-12, and takes what is published", async () => {
    const document = defineCatalog(all).jsonSchema({ id: "https://example.test/shop.json" });
    const ajv = new Ajv2020({ strict: true, strictRequired: false, formats: { "date-time": true } });
    expect(ajv.validateSchema(document), JSON.stringify(ajv.errors)).toBe(true);
    ajv.addSchema(document);
    const sender = recordingSender();
    const publisher = createPublisher(sender, { source: "/shop" });
    const part = { name: "a", parts: [{ name: "b", parts: [] }] };
    await publisher.publish(Placed, { orderId: "1", total: { cents: 1, currency: "EUR" } });
    await publisher.publish(Moved, part);
    await publisher.publish(Cancelled, { orderId: "1" });
    await publisher.publish(Paid, { orderId: "1", cents: 1 });
    for (const message of sender.messages) {
      const valid = ajv.getSchema(`https://example.test/shop.json#/$defs/${message.type}`);
      expect(
        valid?.(JSON.parse(Buffer.from(message.data).toString())),
        `${message.type} ${JSON.stringify(valid?.errors)}`,
      ).toBe(true);
      expect(valid?.({ orderId: 1 })).toBe(false);
    }
    const parts = ajv.getSchema(`https://example.test/shop.json#/$defs/${Moved.type}`);
    expect(parts?.({ name: "a", parts: [{ name: "b", parts: [{}] }] })).toBe(false);
  });

  it("moves what refers inside of a schema, and leaves data alone", () => {
    const schema = z.object({});
    const data = { $ref: "#/x" };
    const jsonSchema = {
      $defs: { a: { $ref: "#/$defs/properties" }, properties: { $ref: "#" } },
      properties: {
        default: { $ref: "#/$defs/a" },
        $id: { $ref: "#" },
        b: { default: data, enum: [data], const: data, examples: [data] },
      },
      anyOf: [{ $ref: "other.json#/x" }, { $ref: "#anchor" }, { $id: "own", items: { $ref: "#" } }],
    };
    const document = defineCatalog([defineEvent({ type: "a/b~c", schema, jsonSchema })]).jsonSchema();
    const at = "#/$defs/a~1b~0c";
    expect(document.$defs).toEqual({
      "a/b~c": {
        $defs: { a: { $ref: `${at}/$defs/properties` }, properties: { $ref: at } },
        properties: {
          default: { $ref: `${at}/$defs/a` },
          $id: { $ref: at },
          b: { default: data, enum: [data], const: data, examples: [data] },
        },
        anyOf: [{ $ref: "other.json#/x" }, { $ref: "#anchor" }, { $id: "own", items: { $ref: "#" } }],
      },
    });
    const own = { $id: "https://example.test/own.json", properties: { a: { $ref: "#" } } };
    const Own = defineEvent({
      type: "a.Own",
      schema,
      jsonSchema: ({ target, of }) => ({ ...own, $comment: `${target} ${of}` }),
    });
    expect(defineCatalog([Own]).jsonSchema({ of: "input" }).$defs).toEqual({
      "a.Own": { ...own, $comment: "draft-2020-12 input" },
    });
  });

  it("asks a converter where a schema cannot tell", () => {
    const schema = v.object({ id: v.string() });
    const catalog = defineCatalog([defineEvent({ type: "a.B", schema }), Cancelled]);
    const told = {
      code: "json-schema-missing",
      message: expect.stringContaining("its schema (valibot) cannot say it"),
    };
    expect(() => catalog.jsonSchema()).toThrow(expect.objectContaining(told));
    expect(() => catalog.asyncApi({ info })).toThrow(expect.objectContaining(told));
    expect(catalog.jsonSchema({ missing: "any" }).$defs).toMatchObject({ "a.B": {} });
    const document = catalog.jsonSchema({
      toJsonSchema: (given, { target }) =>
        given["~standard"].vendor === "valibot" ? { ...toJsonSchema(given as typeof schema, { target }) } : undefined,
    });
    expect(document.$defs).toMatchObject({
      "a.B": { type: "object", required: ["id"] },
      [Cancelled.type]: { type: "object", required: ["orderId"] },
    });
  });

  it("says why a schema cannot be written down", () => {
    const schema = z.object({ at: z.custom<string>(() => true) });
    const catalog = defineCatalog([defineEvent({ type: "a.B", schema })]);
    expect(() => catalog.jsonSchema()).toThrow(
      new RegExp(
        String.raw`no JSON Schema for a\.B: its schema \(zod\): .*; give 'jsonSchema' to defineEvent, ` +
          `or 'toJsonSchema' to this export, or choose missing: "any"`,
      ),
    );
  });
});
