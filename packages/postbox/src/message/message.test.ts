import { describe, expect, it } from "vitest";
import { PostboxError } from "../errors.js";
import { createMessage, type MessageInput } from "./message.js";

const minimal: MessageInput = { id: "1", source: "/orders", type: "shop.orders.v1.OrderPlaced" };

function fault(change: Record<string, unknown>, limits?: { maxMessageBytes?: number }): PostboxError {
  try {
    createMessage({ ...minimal, ...change } as MessageInput, limits);
  } catch (error) {
    return error as PostboxError;
  }
  throw new Error(`accepted: ${JSON.stringify(change)}`);
}

describe("createMessage", () => {
  it("fills in what the envelope needs", () => {
    expect(createMessage({ ...minimal, time: new Date(0) })).toEqual({
      specversion: "1.0",
      id: "1",
      source: "/orders",
      type: "shop.orders.v1.OrderPlaced",
      time: "1970-01-01T00:00:00.000Z",
      datacontenttype: "application/json",
      extensions: {},
      headers: {},
      topic: "shop.orders.v1",
      data: new Uint8Array(0),
    });
  });

  it("takes the whole type as the topic where there is no dot", () => {
    expect(createMessage({ ...minimal, type: "OrderPlaced" }).topic).toBe("OrderPlaced");
  });

  it("spells a key as partitionkey on the wire only", () => {
    const message = createMessage({ ...minimal, extensions: { partitionkey: "k" } });
    expect(message.key).toBe("k");
    expect(message.extensions).toEqual({});
  });

  it("cannot be changed", () => {
    const message = createMessage({ ...minimal, headers: { "x-source": "a" }, extensions: { a: 1 } });
    expect(() => Object.assign(message, { id: "2" })).toThrow(TypeError);
    expect(() => Object.assign(message.headers, { "x-source": "b" })).toThrow(TypeError);
    expect(() => Object.assign(message.extensions, { a: 2 })).toThrow(TypeError);
  });

  it("keeps headers that are no legal extension names, empty ones included", () => {
    const headers = { idempotency_key: "order-1", "x-source": "", Größe: "" };
    expect(fault({ headers }).path).toBe("headers.Größe");
    const { Größe: _, ...legal } = headers;
    expect(createMessage({ ...minimal, headers: legal }).headers).toEqual(legal);
  });

  it("accepts every scalar extension", () => {
    const extensions = { correlationid: "c", retries: 3, urgent: true, low: -2147483648 };
    expect(createMessage({ ...minimal, extensions }).extensions).toEqual(extensions);
  });

  it.each([
    ["an empty id", { id: "" }, "id"],
    ["a number as a key", { key: 7 }, "key"],
    ["a missing source", { source: undefined }, "source"],
    ["a line break, which injects protocol lines", { subject: "a\r\nHPUB x" }, "subject"],
    ["a NUL, which Postgres cannot store", { key: "a\u0000b" }, "key"],
    ["no type and no topic", { type: undefined as never }, "type"],
    ["a C1 control character", { type: "a\u0085" }, "type"],
    ["half of a surrogate pair", { subject: "\ud800" }, "subject"],
    ["the other half", { subject: "x\udc00" }, "subject"],
    ["an id that no AMQP short string holds", { id: "ä".repeat(128) }, "id"],
    ["a topic that no AMQP short string holds", { topic: "t".repeat(256) }, "topic"],
    ["an invalid date", { time: new Date(Number.NaN) }, "time"],
    ["a time without a zone", { time: "2026-01-31T12:00:00" }, "time"],
    ["a day that does not exist", { time: "2026-13-31T12:00:00Z" }, "time"],
    ["a due time in the year 0", { deliverAt: "0000-01-01T00:00:00Z" }, "deliverAt"],
    ["a due time beyond the year 9999", { deliverAt: "9999-12-31T23:59:59-01:00" }, "deliverAt"],
    ["a content type that is none", { datacontenttype: "json" }, "datacontenttype"],
    ["an upper-case extension name", { extensions: { traceParent: "x" } }, "extensions.traceParent"],
    ["a long extension name", { extensions: { abcdefghijklmnopqrstu: "x" } }, "extensions.abcdefghijklmnopqrstu"],
    ["an extension named as an attribute", { extensions: { source: "x" } }, "extensions.source"],
    ["an extension named data", { extensions: { data: "x" } }, "extensions.data"],
    ["an object as an extension", { extensions: { a: { b: 1 } } }, "extensions.a"],
    ["a fraction as an extension", { extensions: { a: 1.5 } }, "extensions.a"],
    ["a number beyond 32 bits", { extensions: { a: 2 ** 31 } }, "extensions.a"],
    ["an expiry that is no time", { extensions: { expirytime: "tomorrow" } }, "extensions.expirytime"],
    ["a header that a binding writes", { headers: { "ce-id": "x" } }, "headers.ce-id"],
    ...[
      "x-death",
      "x-first-death-queue",
      "x-last-death-reason",
      "x-delivery-count",
      "X-Acquired-Count",
      "Content-Type",
      "ce_id",
      "Postbox-Attempt",
    ].map((name): [string, Record<string, unknown>, string] => [
      `the header ${name}, which others write`,
      { headers: { [name]: "x" } },
      `headers.${name}`,
    ]),
    ["an extension named as a field beside the event", { extensions: { key: "x" } }, "extensions.key"],
    ["an empty extension", { extensions: { a: "" } }, "extensions.a"],
    ["a header with a line break", { headers: { a: "x\ny" } }, "headers.a"],
    ["a header that is not text", { headers: { a: 1 } }, "headers.a"],
    ["data that is not bytes", { data: "text" }, "data"],
  ])("refuses %s and says where", (_, change, path) => {
    const error = fault(change);
    expect(error).toBeInstanceOf(PostboxError);
    expect(error.code).toBe("message-invalid");
    expect(error.path).toBe(path);
    expect(error.message).toContain(path);
  });

  it.each<[string, number, (text: string) => Record<string, unknown>]>([
    ["id", 255, (id) => ({ id })],
    ["type", 255, (type) => ({ type, topic: "t" })],
    ["topic", 255, (topic) => ({ topic })],
    ["source", 1024, (source) => ({ source })],
    ["subject", 1024, (subject) => ({ subject })],
    ["key", 1024, (key) => ({ key })],
    ["dataschema", 1024, (dataschema) => ({ dataschema })],
    ["extensions.a", 8192, (a) => ({ extensions: { a } })],
    ["headers.a", 8192, (a) => ({ headers: { a } })],
  ])("takes a %s of %i bytes, and no more", (path, bytes, change) => {
    const message = createMessage({ ...minimal, ...change("x".repeat(bytes)) } as MessageInput);
    expect(message).toMatchObject(change("x".repeat(bytes)));
    expect(fault(change("x".repeat(bytes + 1))).path).toBe(path);
    // The limit counts bytes, not characters.
    expect(fault(change(`${"x".repeat(bytes - 1)}ä`)).path).toBe(path);
  });

  it.each([
    ["2026-01-31T12:00:00+23:59", "2026-01-30T12:01:00.000Z"],
    ["2026-01-31t24:00:00z", "2026-02-01T00:00:00.000Z"],
    [`2026-01-31T12:00:00.${"0".repeat(500)}Z`, "2026-01-31T12:00:00.000Z"],
    ["2026-01-31T12:00:00.9990001Z", "2026-01-31T12:00:01.000Z"],
    [new Date("0001-01-01T00:00:00Z"), "0001-01-01T00:00:00.000Z"],
  ])("is due in UTC, at a whole millisecond, not before %s", (deliverAt, due) => {
    expect(createMessage({ ...minimal, deliverAt }).deliverAt).toBe(due);
  });

  it("takes names of headers up to 128 characters", () => {
    const name = "x".repeat(128);
    expect(createMessage({ ...minimal, headers: { [name]: "" } }).headers).toEqual({ [name]: "" });
    expect(fault({ headers: { [`${name}x`]: "" } }).path).toBe(`headers.${name}x`);
  });

  it("counts every attribute, extension and header, by bytes", () => {
    const input = {
      id: "1",
      source: "/ä",
      type: "t.T",
      subject: "s",
      key: "k",
      time: "2026-01-31T12:00:00Z",
      dataschema: "d",
      datacontenttype: "a/b",
      extensions: { ext: 10 },
      headers: { h: "ü" },
      data: new Uint8Array(7),
    };
    // id, source, type, topic, subject, key, time, dataschema, datacontenttype, extension, header, data
    const size = 1 + 3 + 3 + 1 + 1 + 1 + 20 + 1 + 3 + 5 + 3 + 7;
    expect(createMessage(input, { maxMessageBytes: size }).data).toHaveLength(7);
    expect(() => createMessage(input, { maxMessageBytes: size - 1 })).toThrow(
      `has ${size} bytes, ${size - 1} are allowed`,
    );
  });

  it("refuses what is larger than allowed, counting attributes and headers too", () => {
    expect(fault({ data: new Uint8Array(1024 * 1024) }).code).toBe("message-too-large");
    expect(fault({ headers: { a: "x".repeat(200) } }, { maxMessageBytes: 200 }).code).toBe("message-too-large");
    expect(createMessage({ ...minimal, data: new Uint8Array(2000) }, { maxMessageBytes: 4000 }).data).toHaveLength(
      2000,
    );
  });
});
