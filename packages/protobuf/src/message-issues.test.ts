import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { recordingSender } from "@postbox/testkit";
import { createPublisher } from "postbox";
import { expect, it } from "vitest";
import { type Part, PartSchema, WideEventSchema } from "../fixtures/gen/fixtures/wide/v1/wide_pb.js";
import { Wide } from "../fixtures/gen/fixtures/wide/v1/wide_postbox.js";

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
  ["a Map for a map", { labels: new Map([["a", "b"]]) }, "data.labels", "must be an object"],
  ["a misspelt field", { aStrin: "x" }, "data.aStrin", "is no field of fixtures.wide.v1.WideEvent"],
  ["one deep inside", { parts: [{ parts: [{ nam: "x" }] }] }, "data.parts[0].parts[0].nam", "is no field of"],
  ["one in a map", { partsByNumber: { 1: { nam: "x" } } }, "data.partsByNumber.1.nam", "is no field of"],
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
    "is no message, but inside of one; make it with create, of fixtures.wide.v1.Part",
  ],
  [
    "a misspelt field in a message",
    { ...create(WideEventSchema), aStrin: "x" },
    "data.aStrin",
    "is no field of fixtures",
  ],
  [
    "one in a message deep inside",
    create(WideEventSchema, { parts: [{ ...create(PartSchema), nam: "x" } as Part] }),
    "data.parts[0].nam",
    "is no field of fixtures.wide.v1.Part",
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
  ["a field by a name that all objects have", { constructor: "x" }, "data.constructor", "is no field of"],
  ["no object", "x", "data", "must be an object with the fields of fixtures.wide.v1.WideEvent"],
  ["nothing", undefined, "data", "must be an object"],
  ["another message", create(PartSchema), "data", "is a fixtures.wide.v1.Part, not a fixtures.wide.v1.WideEvent"],
])("a message is refused with %s", async (_, data, path, why) => {
  const publisher = createPublisher(recordingSender(), { source: "/test" });
  const refusal = publisher.publish(Wide, data as never);
  await expect(refusal).rejects.toMatchObject({ code: "data-invalid" });
  await expect(refusal).rejects.toThrow(`${path}: ${why}`);
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
