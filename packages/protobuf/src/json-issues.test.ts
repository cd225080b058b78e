import { create, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import { StructSchema, ValueSchema } from "@bufbuild/protobuf/wkt";
import { recordingSender } from "@postbox/testkit";
import { createPublisher, PostboxError } from "postbox";
import { expect, it } from "vitest";
import { WideEventSchema } from "../fixtures/gen/fixtures/wide/v1/wide_pb.js";
import { Wide } from "../fixtures/gen/fixtures/wide/v1/wide_postbox.js";

const noJson = "must be JSON: an object, an array, a string, a number, true, false or null";

it.each<[string, unknown, string, string]>([
  ["a bigint", { a: 5n }, ".a", noJson],
  ["undefined", { a: undefined }, ".a", noJson],
  ["a function", { a: () => 1 }, ".a", noJson],
  ["a symbol", { a: Symbol("x") }, ".a", noJson],
  ["a Date", { a: new Date() }, ".a", noJson],
  ["a Map", { a: new Map() }, ".a", noJson],
  ["bytes", { a: Uint8Array.of(1) }, ".a", noJson],
  ["an object of a class", { a: new (class Order {})() }, ".a", noJson],
  ["what is deep inside", { a: [1, { b: [new Date()] }] }, ".a[1].b[0]", noJson],
  // biome-ignore lint/suspicious/noSparseArray: this test is about sparse arrays.
  ["a list with a hole", { a: [1, , 2] }, ".a[1]", noJson],
  ["half a character", { a: ["\ud800"] }, ".a[0]", "has half of a surrogate pair"],
  ["half a character for a key", { a: { "\ud800": 1 } }, ".a.\ud800", "its key has half of a surrogate pair"],
  ["a list", [1], "", "must be a JSON object"],
  ["text", "x", "", "must be a JSON object"],
  ["a Date itself", new Date(), "", "must be a JSON object"],
  [
    "a Struct as a message",
    create(StructSchema),
    "",
    "is a google.protobuf.Struct: write the JSON object that it stands",
  ],
])("a Struct is refused with %s, with the path of who gave it", async (_, json, below, why) => {
  const publisher = createPublisher(recordingSender(), { source: "/test" });
  const places: [string, object][] = [
    ["data.details", { details: json }],
    ["data.allDetails[0]", { allDetails: [json] }],
    ["data.detailsByName.n", { detailsByName: { n: json } }],
  ];
  for (const [path, given] of places) {
    for (const data of [given, { ...create(WideEventSchema), ...given }]) {
      const refusal: PostboxError = await publisher.publish(Wide, data as never).then(Object, (error) => error);
      expect(refusal).toBeInstanceOf(PostboxError);
      expect([refusal.code, refusal.path]).toEqual(["data-invalid", path + below]);
      expect(refusal.message).toContain(`${path}${below}: ${why}`);
    }
  }
});

it("a Struct may be as deep as readers go", async () => {
  const deep = (levels: number, end: JsonValue = 1): JsonValue =>
    levels === 0 ? end : levels % 2 ? { a: deep(levels - 1, end) } : [deep(levels - 1, end)];
  const circle: unknown[] = [];
  circle.push(circle, circle);
  // Depth on the wire: 1 + 2 × 49, and inside a part 2 + 2 × 49, because a container is one message and each of its
  // values another.
  const fit: MessageInitShape<typeof WideEventSchema>[] = [
    { details: { a: deep(48) } },
    { part: { details: { a: deep(48) } } },
  ];
  const tooDeep = [
    { details: { a: deep(49) } },
    { part: { details: { a: deep(48, []) } } },
    { part: { details: { a: deep(48, {}) } } },
    { details: { a: circle } },
  ];
  for (const contentType of ["application/protobuf", "application/json"]) {
    const sender = recordingSender();
    const publisher = createPublisher(sender, { source: "/test" });
    const codec = Wide.codecs.find((each) => each.contentType === contentType);
    for (const data of fit) {
      await publisher.publish(Wide, data, { contentType });
      expect(codec?.decode(sender.messages.at(-1)?.data as Uint8Array)).toMatchObject(data);
    }
    for (const data of tooDeep) {
      const refusal = publisher.publish(Wide, data as never, { contentType });
      await expect(refusal).rejects.toMatchObject({ code: "data-invalid" });
      await expect(refusal).rejects.toThrow("is more than 100 messages deep, or inside of itself");
    }
  }
});

it("a Value is refused without a kind, which is what JSON cannot write", async () => {
  const why = "is a google.protobuf.Value without a kind";
  await expect(Wide.validate({ someValue: {} })).rejects.toThrow(`data.someValue: ${why}`);
  const spread = { ...create(WideEventSchema), someValue: create(ValueSchema) };
  await expect(Wide.validate(spread)).rejects.toThrow(`data.someValue: ${why}`);
  const listed = { someValue: { kind: { case: "listValue", value: { values: [{}] } } } };
  await expect(Wide.validate(listed)).rejects.toThrow(`data.someValue.listValue.values[0]: ${why}`);
  const inside = (value: object) => ({ someValue: { kind: { case: "structValue", value } } });
  await expect(Wide.validate(inside({ fields: { a: {} } }))).rejects.toThrow(`.structValue.fields.a: ${why}`);
  // Inside a Value, a Struct is a message.
  await expect(Wide.validate(inside({ a: 1 }))).rejects.toThrow(
    "data.someValue.structValue.a: is not a field of google.protobuf.Struct",
  );
  const fields = { a: { kind: { case: "numberValue", value: 1 } } };
  expect(await Wide.validate(inside({ fields }))).toMatchObject(inside({ fields }));
});
