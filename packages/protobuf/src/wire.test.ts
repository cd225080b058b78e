import { randomBytes } from "node:crypto";
import { create, type JsonObject, type JsonValue, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { recordingSender, telemetryLog } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { connect } from "amqplib";
import { type CloudEvent, HTTP, type Message as HttpMessage } from "cloudevents";
import fc from "fast-check";
import pg from "pg";
import {
  createOutbox,
  createPublisher,
  createRelay,
  createRouter,
  type Message,
  type Store,
  type TelemetryEvent,
} from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";
import { postgresStore } from "postbox/postgres";
import { rabbitmqReceiver, rabbitmqSender } from "postbox/rabbitmq";
import { fromCloudEventJson, toCloudEventJson } from "postbox/transport";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { fromAmqp, toAmqp } from "../../postbox/src/transports/rabbitmq/amqp-message.js";
import { Colour, PartSchema, type WideEvent, WideEventSchema } from "../fixtures/gen/fixtures/wide/v1/wide_pb.js";
import { createWidePublisher, onWide, Wide } from "../fixtures/gen/fixtures/wide/v1/wide_postbox.js";

type Given = MessageInitShape<typeof WideEventSchema>;

const int32 = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const uint32 = fc.integer({ min: 0, max: 2 ** 32 - 1 });
const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const uint64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const text = fc.string({ unit: "binary" });
const bytes = fc.uint8Array({ maxLength: 40 });
// Includes numbers that the enum has no name for.
const colour = fc.oneof(
  fc.constantFrom(Colour.RED, Colour.BELOW_ZERO, Colour.UNSPECIFIED),
  int32,
) as fc.Arbitrary<Colour>;
interface PartInit {
  name: string;
  weight: bigint;
  parts: PartInit[];
}
const { part } = fc.letrec<{ part: PartInit }>((tie) => ({
  part: fc.record({
    name: text,
    weight: uint64,
    parts: fc.oneof({ maxDepth: 2 }, fc.constant<PartInit[]>([]), fc.array(tie("part"), { maxLength: 2 })),
  }),
}));
const chosen = <Case extends string, Value>(name: Case, value: fc.Arbitrary<Value>) =>
  fc.record({ case: fc.constant(name), value });
const name = fc.oneof({ weight: 9, arbitrary: text }, { weight: 1, arbitrary: fc.constant("__proto__") });
const finite = fc.double({ noNaN: true, noDefaultInfinity: true });
/** Any JSON object that a Struct can hold. */
const jsonObject = (fraction: (value: number) => number): fc.Arbitrary<JsonObject> =>
  fc.letrec<{ object: JsonObject; value: JsonValue }>((tie) => ({
    object: fc.dictionary(name, tie("value"), { maxKeys: 3 }),
    value: fc.oneof(
      { maxDepth: 3 },
      fc.constant(null),
      fc.boolean(),
      text,
      finite.map(fraction),
      fc.array(tie("value"), { maxLength: 3 }),
      tie("object"),
    ),
  })).object;
/** From the year 1 to 9999, the range of the JSON mapping. */
const moment = fc.record({
  seconds: fc.bigInt({ min: -62_135_596_800n, max: 253_402_300_799n }),
  nanos: fc.integer({ min: 0, max: 999_999_999 }),
});

/** Any message. `fraction` restricts floating-point numbers. */
const wideWith = (fraction: (value: number) => number): fc.Arbitrary<Given> =>
  fc.record(
    {
      aDouble: fc.double().map(fraction),
      aFloat: fc.float().map(fraction),
      anInt32: int32,
      anInt64: int64,
      aUint32: uint32,
      aUint64: uint64,
      aSint32: int32,
      aSint64: int64,
      aFixed32: uint32,
      aFixed64: uint64,
      aSfixed32: int32,
      aSfixed64: int64,
      aBool: fc.boolean(),
      aString: text,
      someBytes: bytes,
      colour,
      maybeInt32: int32,
      maybeString: text,
      maybeBytes: bytes,
      int64s: fc.array(int64),
      strings: fc.array(text),
      blobs: fc.array(bytes),
      colours: fc.array(colour),
      parts: fc.array(part, { maxLength: 3 }),
      labels: fc.dictionary(name, text),
      partsByNumber: fc.dictionary(int64.map(String), part, { maxKeys: 3 }),
      blobsByFlag: fc.record({ true: bytes, false: bytes }, { requiredKeys: [] }),
      coloursByNumber: fc.dictionary(int32.map(String), colour),
      choice: fc.oneof(
        chosen("chosenString", text),
        chosen("chosenInt64", int64),
        chosen("chosenBytes", bytes),
        chosen("chosenPart", part),
        chosen("chosenColour", colour),
        chosen("chosenWrapped", fc.record({ value: text })),
      ),
      part,
      at: moment,
      took: fc.record({ seconds: fc.bigInt({ min: 0n, max: 315_576_000_000n }), nanos: fc.nat(999_999_999) }),
      details: jsonObject(fraction),
      detailsByName: fc.dictionary(name, jsonObject(fraction), { maxKeys: 2 }),
      allDetails: fc.array(jsonObject(fraction), { maxLength: 2 }),
      someValue: fc.oneof(
        text.map((value) => ({ kind: { case: "stringValue" as const, value } })),
        finite.map((value) => ({ kind: { case: "numberValue" as const, value: fraction(value) } })),
      ),
      wrapped: text,
      wrappedNumber: int64,
      wrappedBytes: bytes,
      anything: part.map((init) => anyPack(PartSchema, create(PartSchema, init))),
    },
    { requiredKeys: [] },
  );

/** JSON writes -0 as 0, its only loss. */
const wideIn: Readonly<Record<string, fc.Arbitrary<Given>>> = {
  "application/protobuf": wideWith((value) => value),
  "application/json": wideWith((value) => value || (Number.isNaN(value) ? value : 0)),
};
const contentTypes = Object.keys(wideIn);
const bytesOf = (data: WideEvent) => Buffer.from(toBinary(WideEventSchema, data));

/** Expects the published message, in every field and every byte. */
async function expectSame(given: Given, message: Message): Promise<void> {
  const codec = Wide.codecs.find(({ contentType }) => contentType === message.datacontenttype);
  const arrived = (await Wide.validate(codec?.decode(message.data))) as WideEvent;
  const expected = create(WideEventSchema, given);
  expect(bytesOf(arrived)).toEqual(bytesOf(expected));
  expect(Buffer.from(message.data)).toEqual(Buffer.from(codec?.encode(expected) ?? []));
}

const amqpOptions = { exchange: Wide.topic, unprefixed: false, maxMessageBytes: 1_000_000 };

/** AMQP and HTTP differ in the prefix of headers, and the SDK supports HTTP only. */
function toHttp(message: Message): HttpMessage {
  const { content, properties } = toAmqp(message, "binary");
  const headers = Object.entries(properties.headers).map(([name, value]) => [
    name.replace("cloudEvents:", "ce-"),
    value,
  ]);
  const body = message.datacontenttype === "application/json" ? content.toString() : content;
  return { headers: { ...Object.fromEntries(headers), "content-type": message.datacontenttype }, body };
}

function fromHttp({ headers: { "content-type": contentType, ...headers }, body }: HttpMessage): Message {
  const named = Object.entries(headers).map(([name, value]) => [name.replace("ce-", "cloudEvents:"), value]);
  const properties = { contentType, headers: Object.fromEntries(named) };
  // Undefined if the message has no bytes.
  return fromAmqp({ content: Buffer.from((body ?? "") as string | Uint8Array), properties }, amqpOptions);
}

function readBySdk(message: HttpMessage): CloudEvent<unknown> {
  return HTTP.toEvent(message) as CloudEvent<unknown>;
}

function writtenBySdk(text: string): string {
  const event = readBySdk({ headers: { "content-type": "application/cloudevents+json" }, body: text });
  expect(event.validate()).toBe(true);
  return HTTP.structured(event).body as string;
}

describe.each(contentTypes)("any message, as %s", (contentType) => {
  const wide = wideIn[contentType] as fc.Arbitrary<Given>;

  it.each<[string, (message: Message) => Message]>([
    ["as it is published", (message) => message],
    ["as structured CloudEvents", (message) => fromCloudEventJson(toCloudEventJson(message))],
    ["over AMQP in binary mode", (message) => fromAmqp(toAmqp(message, "binary"), amqpOptions)],
    ["over AMQP in structured mode", (message) => fromAmqp(toAmqp(message, "structured"), amqpOptions)],
    ["the CloudEvents SDK in binary mode", (message) => fromHttp(HTTP.binary(readBySdk(toHttp(message))))],
    [
      "the CloudEvents SDK in structured mode",
      (message) => fromCloudEventJson(writtenBySdk(toCloudEventJson(message))),
    ],
  ])("survives %s", async (_, mapped) => {
    const sender = recordingSender();
    const publisher = createWidePublisher(createPublisher(sender, { source: "/test" }));
    await fc.assert(
      fc.asyncProperty(wide, async (given) => {
        await publisher.wide(given, { contentType });
        const message = sender.messages.at(-1) as Message;
        const { data: _, ...envelope } = message;
        const arrived = mapped(message);
        expect(arrived).toMatchObject(envelope);
        await expectSame(given, arrived);
      }),
      { numRuns: 60 },
    );
  });

  /** From a transaction through a relay and a broker to a handler. */
  async function handledThrough<Tx>(store: Store<Tx>, given: readonly Given[]): Promise<void> {
    const broker = memoryBroker();
    const log = telemetryLog();
    const outbox = createOutbox(store, { source: "/test" });
    const got = new Map<string, [WideEvent, Message]>();
    const router = createRouter("b", { telemetry: log.telemetry });
    onWide(router, (data, { message }) => void got.set(message.id, [data, message]));
    broker.bind("b", [Wide]);
    const relay = createRelay(store, broker.sender(), { pollIntervalMs: 20 });
    const ids = await store.transaction(async (tx) => {
      const publisher = createWidePublisher(outbox.in(tx));
      const published: string[] = [];
      for (const each of given) published.push((await publisher.wide(each, { contentType })).id);
      return published;
    });
    relay.start();
    router.start(broker.receiver());
    await log.until("delivery.acked", given.length);
    await Promise.all([relay.stop(), router.stop()]);
    for (const [index, id] of ids.entries()) {
      const [data, message] = got.get(id) as [WideEvent, Message];
      const each = given[index] as Given;
      expect(bytesOf(data)).toEqual(bytesOf(create(WideEventSchema, each)));
      await expectSame(each, message);
    }
  }

  it("survives the store and the broker in memory", async () => {
    const several = fc.array(wide, { minLength: 1, maxLength: 10 });
    await fc.assert(
      fc.asyncProperty(several, (given) => handledThrough(memoryStore(), given)),
      { numRuns: 10 },
    );
  });

  describeOnEach("rabbitmq", ({ url }) => {
    it.each(["binary", "structured"] as const)("survives RabbitMQ in %s mode", async (mode) => {
      const name = `wide-${randomBytes(6).toString("hex")}`;
      const route = () => ({ exchange: name, routingKey: "Wide" });
      const got = new Map<string, Message>();
      const log = telemetryLog();
      const router = createRouter("b", { telemetry: log.telemetry });
      onWide(router, (_, { message }) => void got.set(message.id, message));
      const sender = rabbitmqSender({ url, mode, route });
      onTestFinished(async () => {
        await Promise.all([router.stop(), sender.close()]);
        const connection = await connect(url);
        const channel = await connection.createChannel();
        for (const queue of [name, `${name}.parked`]) await channel.deleteQueue(queue);
        await channel.deleteExchange(name);
        await connection.close();
      });
      router.start(rabbitmqReceiver({ url, queue: name, route, telemetry: log.telemetry }));
      // The event is sent when the queue exists and is bound.
      await log.until("transport.connected");
      const publisher = createWidePublisher(createPublisher(sender, { source: "/test" }));
      /** Whether all of these were acknowledged or parked; a parked message would never be acknowledged. */
      const allEnded = (ids: readonly string[]) => {
        const open = new Set(ids);
        return (event: TelemetryEvent) => {
          if (event.name === "delivery.acked" || event.name === "delivery.parked") open.delete(event.id);
          return open.size === 0;
        };
      };
      // All runs share connections and a queue, so one run takes milliseconds.
      await fc.assert(
        fc.asyncProperty(fc.array(wide, { minLength: 1, maxLength: 10 }), async (given) => {
          const published = await Promise.all(given.map((each) => publisher.wide(each, { contentType })));
          const ids = published.map(({ id }) => id);
          await log.until(allEnded(ids), "the end of all messages");
          expect(ids.filter((id) => !got.has(id))).toEqual([]);
          for (const [index, id] of ids.entries()) await expectSame(given[index] as Given, got.get(id) as Message);
        }),
        { numRuns: 12 },
      );
    });
  });

  describeOnEach("postgres", ({ url }) => {
    const schema = `protobuf_${randomBytes(6).toString("hex")}`;
    const pool = new pg.Pool({ connectionString: url, max: 5 });
    const store = postgresStore({ pool, schema });
    beforeAll(() => store.migrate());
    afterAll(async () => {
      await pool.query(`drop schema if exists ${schema} cascade`);
      await pool.end();
    });

    it("survives Postgres", async () => {
      const several = fc.array(wide, { minLength: 1, maxLength: 20 });
      await fc.assert(
        fc.asyncProperty(several, (given) => handledThrough(store, given)),
        { numRuns: 3 },
      );
    });
  });
});
