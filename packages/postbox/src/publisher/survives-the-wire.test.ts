import { describe, expect, it } from "vitest";
import { z } from "zod";
import { PostboxError } from "../errors.js";
import { defineEvent } from "../event/define-event.js";
import { doesNotSurvive, notCarried } from "../event/standard-schema.js";
import type { Codec } from "../message/codec.js";
import type { Message } from "../message/message.js";
import { publisherTo } from "./publisher.js";

/** Encodes any value as a line of text. */
const lineCodec: Codec = {
  contentType: "text/x-line",
  encode: (data) => Buffer.from(String(data)),
  decode: (bytes) => Buffer.from(bytes).toString(),
};

/** Publishes each of `data` in turn, as an untyped caller would. Returns what was sent. */
async function publish(schema: z.ZodType, ...data: unknown[]): Promise<unknown[]> {
  const sent: Message[] = [];
  const publisher = publisherTo("test", { source: "/test" }).into(async (messages) => void sent.push(...messages));
  const Event = defineEvent({ type: "a.B", schema: schema as never });
  for (const one of data) await publisher.publish(Event, one as never);
  return sent.map((message) => JSON.parse(Buffer.from(message.data).toString()));
}

describe("a schema that does not survive the wire", () => {
  it.each<[string, z.ZodType, unknown[], string]>([
    ["a date", z.object({ at: z.date() }), [{ at: new Date(0) }], "data.at"],
    [
      "a date that the first message lacks",
      z.object({ at: z.date().optional() }),
      [{}, {}, { at: new Date(0) }],
      "data.at",
    ],
    ["a transform to another type", z.object({ n: z.string().transform(Number) }), [{ n: "1" }], "data.n"],
    [
      "one that the first message lacks",
      z.object({ n: z.string().transform(Number).optional() }),
      [{}, { n: "1" }],
      "data.n",
    ],
    ["inside of an array", z.array(z.object({ at: z.date() })), [[], [{ at: new Date(0) }]], "data[0].at"],
    ["a date made of an empty object", z.object({}).transform(() => new Date(0)), [{}], "data"],
    ["a transform that repeats", z.object({ cents: z.number().transform((n) => n * 100) }), [{ cents: 1 }], "data"],
  ])("is refused where a message shows it: %s", async (_, schema, data, path) => {
    const refusal = publish(schema, ...data);
    await expect(refusal).rejects.toMatchObject({ name: "ConfigError", code: "event-invalid", path });
    await expect(refusal).rejects.toThrow(`[event-invalid] a.B: ${doesNotSurvive} (`);
    await expect(publish(schema, ...data.slice(0, -1))).resolves.toHaveLength(data.length - 1);
  });

  it.each<[string, z.ZodType, unknown, unknown]>([
    ["defaults and unknown keys", z.object({ a: z.number().default(1) }), { b: 2 }, { a: 1 }],
    ["a transform that settles", z.string().trim().toLowerCase(), " A ", "a"],
    ["a date that it also reads as text", z.object({ at: z.coerce.date() }), { at: 0 }, { at: new Date(0).toJSON() }],
    ["anything", z.any(), { at: new Date(0), zero: -0 }, { at: new Date(0).toJSON(), zero: 0 }],
    ["null", z.null(), null, null],
    ["a default for nothing", z.object({}).default({}), undefined, {}],
    ["null turned into an object", z.any().transform((value) => value ?? {}), null, {}],
    ["an object turned into null", z.any().transform(() => null), {}, null],
  ])("is not one with %s", async (_, schema, data, sent) => {
    expect(await publish(schema, data)).toEqual([sent]);
  });

  it("is one that the codec of another content type cannot carry", async () => {
    const publisher = publisherTo("test", { source: "/test", codecs: [lineCodec] }).into(async () => {});
    const options = { type: "a.Line", contentType: lineCodec.contentType };
    await publisher.publish(defineEvent({ ...options, schema: z.string() }), "1");
    const refusal = publisher.publish(defineEvent({ ...options, schema: z.number() }), 1);
    await expect(refusal).rejects.toMatchObject({ code: "event-invalid", path: "data" });
  });

  it("is one that the event's own codecs cannot carry, also as JSON", async () => {
    const publisher = publisherTo("test", { source: "/test" }).into(async () => {});
    const forgetful = {
      contentType: "application/json",
      encode: () => Buffer.from("null"),
      decode: () => null as never,
    };
    const Event = defineEvent({ type: "a.B", schema: z.object({ n: z.number() }), codecs: [forgetful] });
    const refusal = publisher.publish(Event, { n: 1 });
    await expect(refusal).rejects.toMatchObject({ code: "event-invalid", path: "data" });
    await expect(refusal).rejects.toThrow(`a.B: ${notCarried} (data)`);
  });

  it("is none where the event's own codecs carry what JSON cannot", async () => {
    const sent: Message[] = [];
    const publisher = publisherTo("test", { source: "/test" }).into(async (messages) => void sent.push(...messages));
    const codec: Codec<{ at: Date; n: bigint }> = {
      contentType: "text/x-pair",
      encode: ({ at, n }) => Buffer.from(`${at.getTime()} ${n}`),
      decode(bytes) {
        const [at, n] = Buffer.from(bytes).toString().split(" ");
        return { at: new Date(Number(at)), n: BigInt(n ?? 0) };
      },
    };
    const schema = z.object({ at: z.date(), n: z.bigint() });
    await publisher.publish(defineEvent({ type: "a.B", schema, codecs: [codec] }), { at: new Date(7), n: 8n });
    expect(sent.map(({ datacontenttype, data }) => [datacontenttype, Buffer.from(data).toString()])).toEqual([
      ["text/x-pair", "7 8"],
    ]);
  });

  it.each([new Error("lookup down"), new PostboxError("store-failed", "lookup down")])(
    "passes the failure of a schema that fails by itself on as it is: %s",
    async (down) => {
      let calls = 0;
      const validate = (value: unknown) => (++calls === 1 ? { value: { value } } : Promise.reject(down));
      const schema = { "~standard": { version: 1, vendor: "test", validate } };
      await expect(publish(schema as never, 1)).rejects.toBe(down);
    },
  );

  it("reads plain JSON once", async () => {
    let calls = 0;
    const validate = (value: unknown) => ({ value: structuredClone(value), issues: void calls++ });
    const schema = { "~standard": { version: 1, vendor: "test", validate } };
    const data = { a: [1, "x", null, { b: true }] };
    expect(await publish(schema as never, data, data)).toEqual([data, data]);
    expect(calls).toBe(2);
  });
});
