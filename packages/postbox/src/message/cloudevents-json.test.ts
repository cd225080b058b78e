import { CloudEvent, HTTP } from "cloudevents";
import fc from "fast-check";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import {
  fromCloudEventBatchJson,
  fromCloudEventJson,
  toCloudEventBatchJson,
  toCloudEventJson,
} from "./cloudevents-json.js";
import { createMessage, type Message } from "./message.js";

const message = createMessage({
  id: "1",
  source: "/orders",
  type: "shop.orders.v1.OrderPlaced",
  subject: "größe",
  time: "2026-01-31T12:00:00.123456789Z",
  dataschema: "https://example.test/order.json",
  extensions: { correlationid: "c", retries: 3, urgent: true },
  key: "order-1",
  data: Buffer.from('{"total": 1.0, "big": 9007199254740993, "a": {"]": "}\\""}}'),
});

describe("CloudEvents JSON", () => {
  it("refuses an event with more members than any event has, before it parses it", () => {
    const event = (members: number, data = "1") => {
      const more = Array.from({ length: members - 5 }, (_, index) => `"x${index}":"{,"`).join();
      return `{"specversion":"1.0","id":"1","source":"/","type":"a.b",${more},"data":${data}}`;
    };
    const parse = vi.spyOn(JSON, "parse");
    onTestFinished(() => parse.mockRestore());
    expect(() => fromCloudEventJson(event(1001))).toThrow("it has more than 1000 members");
    expect(parse).not.toHaveBeenCalled();
    expect(() => fromCloudEventBatchJson(`[${event(1001)}]`)).toThrow("it has more than 1000 members");
    // Members of the data are not members of the event.
    const data = JSON.stringify(Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`"y${index}`, [1, 2]])));
    const read = fromCloudEventJson(event(1000, data));
    expect(Object.keys(read.extensions)).toHaveLength(995);
    expect(Buffer.from(read.data).toString()).toBe(data);
  });

  it("gives back the same message, its JSON data byte for byte", () => {
    const text = toCloudEventJson(message);
    expect(JSON.parse(text)).toMatchObject({ specversion: "1.0", partitionkey: "order-1", retries: 3, urgent: true });
    expect(fromCloudEventJson(text)).toEqual(message);
  });

  it("gives back any data of any content type", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.uint8Array(),
          fc.json().map((json) => Buffer.from(json)),
          fc.json().map((json) => Buffer.from(`\n${json} `)),
        ),
        fc.constantFrom("application/json", "application/x+json", "text/plain", "application/octet-stream"),
        (data, datacontenttype) => {
          const original = createMessage({ ...message, datacontenttype, data });
          const back = fromCloudEventJson(toCloudEventJson(original));
          expect(Buffer.from(back.data).equals(data)).toBe(true);
        },
      ),
    );
  });

  it("lets no extension take the place of an attribute", () => {
    // SQL can insert a row like this.
    const forged: Message = { ...message, extensions: { id: "other", type: "evil", specversion: "9" } };
    expect(JSON.parse(toCloudEventJson(forged))).toMatchObject({ id: "1", type: message.type, specversion: "1.0" });
  });

  it("carries batches, empty ones too", () => {
    const other: Message = createMessage({ ...message, id: "2", data: Buffer.from("[1 , 2]") });
    expect(fromCloudEventBatchJson(toCloudEventBatchJson([message, other]))).toEqual([message, other]);
    expect(fromCloudEventBatchJson(" [ ] ")).toEqual([]);
  });

  it("reads spaces, escapes, repeated members and nulls as JSON does", () => {
    const text = `\n{ "id" : "1", "source":"/a","type":"t.T","specversion":"1.0","subject":null,
      "data":1, "d\\u0061ta" : [ "\\\\" , {"x":"]"} ] , "flag":true }\n`;
    const read = fromCloudEventJson(text);
    expect(Buffer.from(read.data).toString()).toBe('[ "\\\\" , {"x":"]"} ]');
    expect(read).toMatchObject({ extensions: { flag: true }, topic: "t" });
    expect(read).not.toHaveProperty("subject");
  });

  it("takes text data of a text type as it is", () => {
    const text = '{"id":"1","source":"/a","type":"t.T","specversion":"1.0","datacontenttype":"text/plain","data":"hä"}';
    expect(Buffer.from(fromCloudEventJson(text).data).toString()).toBe("hä");
  });

  it("accepts foreign extensions that the specification allows, and ours may not have", () => {
    const foreign = { averylongextensionname123: "x", key: "k", topic: "t", headers: "h", empty: "" };
    const required = { id: "1", source: "/a", type: "shop.T", specversion: "1.0" };
    const read = fromCloudEventJson(JSON.stringify({ ...required, ...foreign }));
    expect(read.extensions).toEqual(foreign);
    expect(read).toMatchObject({ topic: "shop", headers: {} });
    expect(read).not.toHaveProperty("key");
    expect(fromCloudEventJson(toCloudEventJson(read))).toEqual(read);
  });

  it("keeps bytes that claim to be JSON and are not even text", () => {
    const data = Uint8Array.of(0x22, 0xff, 0x22);
    const back = fromCloudEventJson(toCloudEventJson(createMessage({ ...message, data })));
    expect(Buffer.from(back.data).equals(data)).toBe(true);
  });

  it("keeps a byte order mark, which no JSON text may begin with", () => {
    const data = Uint8Array.of(0xef, 0xbb, 0xbf, 0x31);
    const back = fromCloudEventJson(toCloudEventJson(createMessage({ ...message, data })));
    expect(Buffer.from(back.data).equals(data)).toBe(true);
  });

  it("takes the bound of its caller", () => {
    const maxMessageBytes = toCloudEventJson(message).length;
    expect(fromCloudEventJson(toCloudEventJson(message), { maxMessageBytes })).toEqual(message);
    expect(() => fromCloudEventJson(toCloudEventJson(message), { maxMessageBytes: 100 })).toThrow("100 are allowed");
  });

  it("is what the CloudEvents SDK reads and writes", () => {
    const theirs = HTTP.toEvent<{ total: number }>({
      headers: { "content-type": "application/cloudevents+json" },
      body: toCloudEventJson(message),
    }) as CloudEvent<{ total: number }>;
    expect(theirs).toMatchObject({ id: "1", source: "/orders", subject: "größe", partitionkey: "order-1", retries: 3 });
    expect(theirs.data?.total).toBe(1);
    const event = new CloudEvent({ id: "9", source: "/them", type: "a.B", data: { x: 1 }, partitionkey: "k" });
    const ours = fromCloudEventJson(HTTP.structured(event).body as string);
    expect(ours).toMatchObject({ id: "9", source: "/them", key: "k", topic: "a" });
    expect(JSON.parse(Buffer.from(ours.data).toString())).toEqual({ x: 1 });
  });

  it("has the attributes and the bytes that the CloudEvents SDK sees, and sees those that it has", () => {
    const text = fc
      .string({ unit: "grapheme", minLength: 1, maxLength: 20 })
      .filter((each) => /^[^\p{Cc}\p{Cn}\p{Cs}]+$/u.test(each));
    const attributes = fc.record(
      {
        id: text,
        source: fc.webPath().map((path) => path || "/"),
        type: text,
        subject: text,
        time: fc.date({ min: new Date(0), max: new Date(4e12), noInvalidDate: true }).map((date) => date.toISOString()),
        dataschema: fc.webUrl(),
        partitionkey: text,
        retries: fc.integer({ min: 1, max: 0x7fffffff }),
        urgent: fc.boolean(),
      },
      { requiredKeys: ["id", "source", "type", "time"] },
    );
    const datacontenttype = fc.constantFrom("application/protobuf", "application/octet-stream");
    const bytes = fc.uint8Array({ minLength: 1 });
    fc.assert(
      fc.property(attributes, datacontenttype, bytes, (given, contentType, data) => {
        const { partitionkey, retries, urgent, ...rest } = given;
        const extensions = { ...(retries !== undefined && { retries }), ...(urgent !== undefined && { urgent }) };
        const ours = createMessage({ ...rest, extensions, key: partitionkey, datacontenttype: contentType, data });
        const theirs = HTTP.toEvent({
          headers: { "content-type": "application/cloudevents+json" },
          body: toCloudEventJson(ours),
        }) as CloudEvent<Uint32Array>;
        expect(theirs).toMatchObject({ ...given, datacontenttype: contentType });
        expect(theirs.data_base64).toBe(Buffer.from(data).toString("base64"));
        const made = new CloudEvent({ ...given, datacontenttype: contentType, data });
        expect(fromCloudEventJson(HTTP.structured(made).body as string)).toEqual({ ...ours, data: Buffer.from(data) });
      }),
    );
  });

  it.each([
    ["no JSON", "{"],
    ["an array", "[]"],
    ["a missing version", '{"id":"1","source":"/a","type":"t"}'],
    ["another version", '{"id":"1","source":"/a","type":"t","specversion":"0.3"}'],
    ["no id", '{"source":"/a","type":"t","specversion":"1.0"}'],
    ["an object as an extension", '{"id":"1","source":"/a","type":"t","specversion":"1.0","x":{}}'],
    ["base64 that is no text", '{"id":"1","source":"/a","type":"t","specversion":"1.0","data_base64":1}'],
    ["base64 that is none", '{"id":"1","source":"/a","type":"t","specversion":"1.0","data_base64":"a?b="}'],
    ["base64 that was cut", '{"id":"1","source":"/a","type":"t","specversion":"1.0","data_base64":"AAA"}'],
    ["base64 for URLs", '{"id":"1","source":"/a","type":"t","specversion":"1.0","data_base64":"-_-_"}'],
    ["an empty key", '{"id":"1","source":"/a","type":"t","specversion":"1.0","partitionkey":""}'],
  ])("refuses %s for good", (_, text) => {
    const refusal = expect.objectContaining({ name: "PermanentError", code: "message-invalid" });
    expect(() => fromCloudEventJson(text)).toThrow(refusal);
  });

  it("refuses a batch that is none", () => {
    expect(() => fromCloudEventBatchJson("{}")).toThrow("a batch is a JSON array");
  });
});
