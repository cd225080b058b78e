import { describe, expect, it } from "vitest";
import { createMessage } from "../../message/message.js";
import type { ReceivedRecord } from "./client.js";
import { type FromRecordOptions, fromRecord, toRecord } from "./kafka-message.js";

const options: FromRecordOptions = { topic: "orders", partition: 3, maxMessageBytes: 1_000_000 };
const bytes = (text: string) => Buffer.from(text);

function received(record: Partial<ReceivedRecord>): ReceivedRecord {
  return { offset: 7, timestamp: Date.parse("2026-01-31T12:00:00Z"), key: null, value: null, headers: {}, ...record };
}

describe("a message as a record", () => {
  const message = createMessage({
    id: "1",
    source: "/orders",
    type: "orders.Placed",
    key: "größe",
    subject: "s",
    time: "2026-01-31T12:00:00Z",
    extensions: { correlationid: "c", retries: 3, urgent: true, code: "007" },
    headers: { "x-source": "web" },
    data: bytes('{"x":1}'),
  });

  it("has its attributes as headers with the prefix ce_, as text", () => {
    const { key, value, headers } = toRecord(message, "orders", "binary");
    const text = Object.fromEntries(Object.entries(headers).map(([name, header]) => [name, String(header)]));
    expect([String(key), String(value)]).toEqual(["größe", '{"x":1}']);
    expect(text).toEqual({
      ce_specversion: "1.0",
      ce_id: "1",
      ce_source: "/orders",
      ce_type: "orders.Placed",
      ce_subject: "s",
      ce_time: "2026-01-31T12:00:00Z",
      ce_partitionkey: "größe",
      ce_correlationid: "c",
      ce_retries: "3",
      ce_urgent: "true",
      ce_code: "007",
      "content-type": "application/json",
      "postbox-typed": "retries,urgent",
      "x-source": "web",
    });
  });

  it.each(["binary", "structured"] as const)("arrives as it was, %s", (mode) => {
    const record = toRecord(message, "orders", mode);
    expect(fromRecord(received(record), options)).toEqual({ ...message, data: expect.anything() });
    expect(String(fromRecord(received(record), options).data)).toBe('{"x":1}');
  });

  it("keeps its topic when it is sent to another one", () => {
    const record = toRecord(message, "tenant-1", "binary");
    expect(fromRecord(received(record), { ...options, topic: "tenant-1" }).topic).toBe("orders");
  });

  it("is no tombstone without data", () => {
    const { data: _, ...rest } = message;
    expect(toRecord({ ...rest, data: new Uint8Array(0) }, "orders", "binary").value).toEqual(Buffer.alloc(0));
  });
});

describe("a record of another producer", () => {
  const event = { ce_specversion: "1.0", ce_id: "9", ce_source: "/them", ce_type: "a.B" };
  const headers = (all: Record<string, string>) =>
    Object.fromEntries(Object.entries(all).map(([name, value]) => [name, bytes(value)]));

  it("is an event if it has the attributes; its key is the record's", () => {
    const message = fromRecord(received({ headers: headers(event), key: bytes("k"), value: bytes("1") }), options);
    expect(message).toMatchObject({ id: "9", source: "/them", type: "a.B", key: "k", topic: "orders" });
  });

  it("takes the last of several headers with a name", () => {
    const twice = { ...headers(event), ce_subject: [bytes("a"), bytes("b")] };
    expect(fromRecord(received({ headers: twice }), options).subject).toBe("b");
  });

  it("has no key as text if the key is no text", () => {
    const message = fromRecord(received({ headers: headers(event), key: Buffer.from([0xff, 0xfe]) }), options);
    expect(message.key).toBeUndefined();
  });

  it.each<[string, Partial<ReceivedRecord>, string]>([
    ["no event", { value: bytes('{"x":1}') }, "give 'fromForeign'"],
    ["another version", { headers: headers({ ...event, ce_specversion: "0.3" }) }, "specversion is 0.3"],
    ["no source", { headers: headers({ ce_specversion: "1.0", ce_id: "1", ce_type: "t" }) }, "source"],
    [
      "broken JSON",
      { headers: headers({ "content-type": "application/cloudevents+json" }), value: bytes("{") },
      "JSON",
    ],
    ["too large", { value: Buffer.alloc(1_000_001) }, "larger than maxMessageBytes"],
  ])("is refused for good with %s", (_, record, why) => {
    expect(() => fromRecord(received(record), options)).toThrow(
      expect.objectContaining({ name: "PermanentError", message: expect.stringContaining(why) }),
    );
  });

  it("is mapped by the user's function", () => {
    // As Debezium's outbox router writes them.
    const record = received({
      key: bytes("order-1"),
      value: bytes('{"orderId":"1"}'),
      headers: headers({ id: "42", eventType: "OrderPlaced" }),
    });
    const message = fromRecord(record, {
      ...options,
      fromForeign: ({ headers: { id, eventType }, topic, partition, offset, value }) => ({
        id: id ?? `${topic}/${partition}/${offset}`,
        source: "/debezium",
        type: `shop.orders.v1.${eventType}`,
        ...(value && { data: value }),
      }),
    });
    expect(message).toMatchObject({
      id: "42",
      type: "shop.orders.v1.OrderPlaced",
      key: "order-1",
      topic: "orders",
      time: "2026-01-31T12:00:00.000Z",
      headers: { id: "42", eventType: "OrderPlaced" },
    });
  });

  it("is refused for good if the user's function throws", () => {
    const fromForeign = () => {
      throw new Error("no idea");
    };
    expect(() => fromRecord(received({}), { ...options, fromForeign })).toThrow("'fromForeign' threw: no idea");
  });
});
