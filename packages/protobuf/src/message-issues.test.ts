import { runInNewContext } from "node:vm";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { recordingSender } from "@postbox/testkit";
import { createPublisher } from "postbox";
import { expect, it } from "vitest";
import { AccountOpenedEventSchema } from "../fixtures/gen/fixtures/proto2/v1/proto2_pb.js";
import { AccountOpened } from "../fixtures/gen/fixtures/proto2/v1/proto2_postbox.js";
import { OrderEventLostSchema, OrderPlacedEventSchema } from "../fixtures/gen/fixtures/shop/v1/orders_pb.js";
import { OrderEventLost, OrderPlaced } from "../fixtures/gen/fixtures/shop/v1/orders_postbox.js";
import { type Part, PartSchema, WideEventSchema } from "../fixtures/gen/fixtures/wide/v1/wide_pb.js";
import { Wide } from "../fixtures/gen/fixtures/wide/v1/wide_postbox.js";

/** Expects a refusal before any codec is used, whether or not a codec could carry the data. */
async function expectRefused(data: unknown, path: string, why: string): Promise<void> {
  const publisher = createPublisher(recordingSender(), { source: "/test" });
  for (const contentType of ["application/protobuf", "application/json"]) {
    const refusal = publisher.publish(Wide, data as never, { contentType });
    await expect(refusal).rejects.toMatchObject({ code: "data-invalid", path });
    await expect(refusal).rejects.toThrow(`${path}: ${why}`);
  }
}

it.each<[string, unknown, string, string]>([
  ["text for a number", { anInt32: "1" }, "data.anInt32", "must be a whole number from -2147483648 to 2147483647"],
  ["a fraction", { parts: [{}, { parts: [{ weight: 1.5 }] }] }, "data.parts[1].parts[0].weight", "must be a bigint"],
  ["what is too large", { aUint32: 2 ** 32 }, "data.aUint32", "must be a whole number from 0 to 4294967295"],
  ["what is beyond 64 bits", { anInt64: 2n ** 63n }, "data.anInt64", "must be a bigint from -9223372036854775808"],
  ["what is too small", { aUint64: -1n }, "data.aUint64", "must be a bigint from 0 to 18446744073709551615"],
  ["a number for an int64", { int64s: [1n, 2] }, "data.int64s[1]", "must be a bigint"],
  ["text for a flag", { aBool: "false" }, "data.aBool", "must be true or false"],
  ["a number for text", { labels: { a: 1 } }, "data.labels.a", "must be a string"],
  ["half a character", { aString: "\ud800" }, "data.aString", "has half of a surrogate pair"],
  ["text for bytes", { choice: { case: "chosenBytes", value: "x" } }, "data.chosenBytes", "must be a Uint8Array"],
  ["numbers for bytes", { someBytes: [300] }, "data.someBytes", "must be a Uint8Array"],
  ["numbers for bytes in a list", { blobs: [[1]] }, "data.blobs[0]", "must be a Uint8Array"],
  ["numbers for bytes in a map", { blobsByFlag: { true: [1] } }, "data.blobsByFlag.true", "must be a Uint8Array"],
  [
    "numbers for bytes in a oneof",
    { choice: { case: "chosenBytes", value: [1] } },
    "data.chosenBytes",
    "must be a Uint",
  ],
  ["numbers for wrapped bytes", { wrappedBytes: [1] }, "data.wrappedBytes", "must be a Uint8Array"],
  ["text for a fraction", { aDouble: "1" }, "data.aDouble", "must be a number"],
  ["a float that is none", { aFloat: 1e39 }, "data.aFloat", "is beyond what a float holds"],
  ["an enum by name", { colour: "COLOUR_RED" }, "data.colour", "must be a whole number"],
  ["a key that is none", { coloursByNumber: { x: 1 } }, "data.coloursByNumber.x", "its key must be a whole number"],
  ["no list", { strings: 5 }, "data.strings", "must be an array"],
  ["no map", { labels: "a" }, "data.labels", "must be an object"],
  ["no message", { part: 5 }, "data.part", "must be an object with the fields of fixtures.wide.v1.Part"],
  ["bytes", Uint8Array.of(8, 1), "data", "must be an object with the fields of fixtures.wide.v1.WideEvent, or such a"],
  ["a Buffer", Buffer.from("x"), "data", "must be an object"],
  ["a Map", new Map([["aString", "x"]]), "data", "must be an object"],
  ["a Date", new Date(), "data", "must be an object"],
  ["a list", [{}], "data", "must be an object"],
  ["a Date for a message", { at: new Date() }, "data.at", "must be an object with the fields of google.protobuf.Time"],
  [
    "a Date for a Timestamp",
    { at: new Date() },
    "data.at",
    "must be an object with the fields of google.protobuf.Timestamp, or such a message: make it with " +
      "timestampFromDate;",
  ],
  [
    "a Date for another message",
    { took: new Date() },
    "data.took",
    "must be an object with the fields of google.protobuf.Duration, or such a message;",
  ],
  ["a key that is another's", { coloursByNumber: { "01": 1 } }, "data.coloursByNumber.01", "its key must be a whole"],
  ["a key that is empty", { partsByNumber: { "": {} } }, "data.partsByNumber.", "its key must be a bigint"],
  ["a Map for a map", { labels: new Map([["a", "b"]]) }, "data.labels", "must be an object"],
  ["a misspelt field", { aStrin: "x" }, "data.aStrin", "is not a field of fixtures.wide.v1.WideEvent"],
  ["one deep inside", { parts: [{ parts: [{ nam: "x" }] }] }, "data.parts[0].parts[0].nam", "is not a field of"],
  ["one in a map", { partsByNumber: { 1: { nam: "x" } } }, "data.partsByNumber.1.nam", "is not a field of"],
  ["an unknown case", { choice: { case: "no", value: 1 } }, "data.choice.case", "must be one of chosenString, "],
  ["no case at all", { choice: "chosenString" }, "data.choice", "must be an object of case and value"],
  ["a case as a field", { chosenString: "x" }, "data.chosenString", "is a case of the oneof 'choice': write choice: {"],
  ["text for messages", { parts: "x" }, "data.parts", "must be an array"],
  ["another message inside", { part: create(WideEventSchema) }, "data.part", "is a fixtures.wide.v1.WideEvent, not a"],
  [
    "another message inside of a message",
    { ...create(WideEventSchema), part: create(WideEventSchema) },
    "data.part",
    "is a fixtures.wide.v1.WideEvent; make it with create, of fixtures.wide.v1.Part",
  ],
  [
    "an object inside of a message",
    { ...create(WideEventSchema), part: { name: "x" } },
    "data.part",
    "is not a message, although inside of one; make it with create, of fixtures.wide.v1.Part",
  ],
  [
    "a misspelt field in a message",
    { ...create(WideEventSchema), aStrin: "x" },
    "data.aStrin",
    "is not a field of fixtures",
  ],
  [
    "one in a message deep inside",
    create(WideEventSchema, { parts: [{ ...create(PartSchema), nam: "x" } as Part] }),
    "data.parts[0].nam",
    "is not a field of fixtures.wide.v1.Part",
  ],
  [
    "a case as a field of a message",
    { ...create(WideEventSchema), chosenString: "x" },
    "data.chosenString",
    "is a case of the oneof 'choice': write choice: {",
  ],
  [
    "an unknown case in a message",
    { ...create(WideEventSchema), choice: { case: "no", value: 1 } },
    "data.choice.case",
    "must be one of chosenString, chosenInt64, ",
  ],
  ["a field by a name that all objects have", { constructor: "x" }, "data.constructor", "is not a field of"],
  ["no object", "x", "data", "must be an object with the fields of fixtures.wide.v1.WideEvent"],
  ["nothing", undefined, "data", "must be an object"],
  ["another message", create(PartSchema), "data", "is a fixtures.wide.v1.Part, not a fixtures.wide.v1.WideEvent"],
  [
    "no text in a oneof",
    { choice: { case: "chosenString", value: undefined } },
    "data.chosenString",
    "must be a string",
  ],
  [
    "no enum in a oneof",
    { choice: { case: "chosenColour", value: undefined } },
    "data.chosenColour",
    "must be a whole",
  ],
  [
    "no message in a oneof",
    { choice: { case: "chosenPart", value: undefined } },
    "data.chosenPart",
    "must be an object",
  ],
  [
    "a wrapper's value in a oneof",
    { choice: { case: "chosenWrapped", value: "x" } },
    "data.chosenWrapped",
    "must be an",
  ],
  ["a value without a case", { choice: { value: "x" } }, "data.choice.case", "must be one of chosenString, "],
  [
    "the name of a field in the .proto",
    { a_string: "x" },
    "data.a_string",
    "is not a field of fixtures.wide.v1.WideEvent; h",
  ],
  ["the value of another wrapper", { wrappedNumber: 5 }, "data.wrappedNumber", "must be a bigint"],
  ["a key that begins as one", { coloursByNumber: { "1x": 1 } }, "data.coloursByNumber.1x", "its key must be a whole"],
  [
    "a key that is no flag",
    { blobsByFlag: { yes: Uint8Array.of() } },
    "data.blobsByFlag.yes",
    "its key must be true or",
  ],
  [
    "a key beyond 64 bits",
    { partsByNumber: { [`${2n ** 63n}`]: {} } },
    `data.partsByNumber.${2n ** 63n}`,
    "its key must",
  ],
  ["a key of half a character", { labels: { "\ud800": "x" } }, "data.labels.\ud800", "its key has half of a surrogate"],
])("a message is refused with %s", (_, data, path, why) => expectRefused(data, path, why));

it.each<[string, object, string, string]>([
  ["undefined for text", { aString: undefined }, "data.aString", "must be a string"],
  ["undefined for a number", { anInt32: undefined }, "data.anInt32", "must be a whole number"],
  ["undefined for a bigint", { anInt64: undefined }, "data.anInt64", "must be a bigint"],
  ["undefined for a fraction", { aDouble: undefined }, "data.aDouble", "must be a number"],
  ["undefined for a flag", { aBool: undefined }, "data.aBool", "must be true or false"],
  ["undefined for bytes", { someBytes: undefined }, "data.someBytes", "must be a Uint8Array"],
  ["undefined for an enum", { colour: undefined }, "data.colour", "must be a whole number"],
  ["undefined for a list", { strings: undefined }, "data.strings", "must be an array"],
  ["undefined for a map", { labels: undefined }, "data.labels", "must be an object"],
  ["undefined in a list", { strings: [undefined] }, "data.strings[0]", "must be a string"],
  [
    "undefined in a list of messages",
    { parts: [undefined] },
    "data.parts[0]",
    "is not a message, although inside of one",
  ],
  ["undefined in a map", { labels: { a: undefined } }, "data.labels.a", "must be a string"],
  ["undefined in a map of messages", { partsByNumber: { 1: undefined } }, "data.partsByNumber.1", "is no message, but"],
  ["undefined for a oneof", { choice: undefined }, "data.choice", "must be an object of case and value"],
  ["null for a oneof", { choice: null }, "data.choice", "must be an object of case and value"],
  ["text for a oneof", { choice: "x" }, "data.choice", "must be an object of case and value"],
  ["no text in a oneof", { choice: { case: "chosenString" } }, "data.chosenString", "must be a string"],
  [
    "no message in a oneof",
    { choice: { case: "chosenPart" } },
    "data.chosenPart",
    "is not a message, although inside of one",
  ],
  ["null for optional text", { maybeString: null }, "data.maybeString", "must be a string"],
  ["null for a wrapped text", { wrapped: null }, "data.wrapped", "must be a string"],
  [
    "a Date for a Timestamp",
    { at: new Date() },
    "data.at",
    "is not a message, although inside of one; make it with timestampFromDate;",
  ],
  [
    "null for a message",
    { at: null },
    "data.at",
    "is not a message, although inside of one; make it with create, of google.",
  ],
  [
    "text for a message",
    { at: "x" },
    "data.at",
    "is not a message, although inside of one; make it with create, of google.",
  ],
  ["null for a map", { labels: null }, "data.labels", "must be an object"],
  ["a Map for a map", { labels: new Map([["a", "b"]]) }, "data.labels", "must be an object"],
])("a message that was made by spreading another is refused with %s", (_, changed, path, why) =>
  expectRefused({ ...create(WideEventSchema), ...changed }, path, why),
);

it("is no key, and no word, what is undefined in a message", async () => {
  const sender = recordingSender();
  const publisher = createPublisher(sender, { source: "/test" });
  const order = { ...create(OrderPlacedEventSchema), orderId: undefined } as never;
  await expect(publisher.publish(OrderPlaced, order)).rejects.toMatchObject({
    code: "data-invalid",
    path: "data.orderId",
  });
  // This message can tell unset from empty.
  await publisher.publish(OrderEventLost, { ...create(OrderEventLostSchema), orderId: undefined } as never);
  await publisher.publish(AccountOpened, {
    ...create(AccountOpenedEventSchema, { number: 1 }),
    owner: undefined,
  } as never);
  expect(sender.messages.map(({ key, data }) => [key, [...data]])).toEqual([
    [undefined, []],
    ["1", [8, 1]],
  ]);
});

it("takes undefined and null for what is not set, where a message is made", async () => {
  const given = { aString: undefined, anInt64: null, strings: null, labels: null, part: null, at: undefined };
  const others = { choice: { case: null }, wrapped: null, details: null, removed: undefined };
  for (const choice of [null, undefined, {}, { case: undefined }, { case: null }]) {
    expect(await Wide.validate({ ...given, ...others, choice })).toEqual(create(WideEventSchema));
  }
  // In a message as well, a key with the value undefined loses nothing.
  await Wide.validate({ ...create(WideEventSchema), removed: undefined });
  expect(await Wide.validate({ ...create(WideEventSchema), choice: { case: null } })).toBeDefined();
});

it("takes objects of any realm, and without a prototype", async () => {
  const [data, labels] = [runInNewContext("({ part: { name: 'p' }, details: { a: [{}] } })"), Object.create(null)];
  labels.a = "b";
  expect(await Wide.validate({ ...data, labels })).toMatchObject({ part: { name: "p" }, labels: { a: "b" } });
  expect(await Wide.validate(data)).toMatchObject({ part: { name: "p" }, details: { a: [{}] } });
});

it("a message is refused as deep as no reader goes", async () => {
  const publisher = createPublisher(recordingSender(), { source: "/test" });
  const deep = (depth: number): MessageInitShape<typeof PartSchema> =>
    depth === 0 ? {} : { parts: [deep(depth - 1)] };
  await publisher.publish(Wide, { part: deep(98) });
  await publisher.publish(Wide, { part: deep(98) }, { contentType: "application/json" });
  const circle: { parts: unknown[] } = { parts: [{}] };
  circle.parts.push(circle, circle);
  const message = create(PartSchema);
  message.parts.push(message, message);
  for (const part of [deep(99), create(PartSchema, deep(99)), circle, message]) {
    const refusal = publisher.publish(Wide, { part } as never);
    await expect(refusal).rejects.toMatchObject({ code: "data-invalid" });
    await expect(refusal).rejects.toMatchObject({ path: expect.stringMatching(/^data\.part\.parts\[/) });
    await expect(refusal).rejects.toThrow("is more than 100 messages deep, or inside of itself");
  }
});
