import fc from "fast-check";
import type { Message } from "postbox";
import { createMessage } from "postbox/transport";
import { describe, expect } from "vitest";
import { arbitraryMessage } from "../arbitrary-message.js";
import { comparable } from "../messages.js";
import type { Stage, TransportFact } from "./transport-facts.js";

/** A message arrives as it was sent. */
export function roundTripFacts(fact: TransportFact): void {
  const arrives = async ({ send, consume }: Stage, message: Message) => {
    await send(message);
    const delivery = await consume().next();
    expect(comparable(delivery.message)).toStrictEqual(comparable(message));
    expect(delivery.attempt).toBe(1);
    await delivery.ack();
  };

  describe("a message arrives", () => {
    fact("with every attribute, extension and header", (stage) =>
      arrives(
        stage,
        stage.message("m1", {
          source: "https://shop.example/orders?a=1",
          subject: 'order 1 / "é" 😀',
          key: "käse",
          time: "2026-01-31T12:00:00.123456789+05:45",
          datacontenttype: "application/json; charset=utf-8",
          dataschema: "https://shop.example/schema",
          extensions: { correlationid: "c1", traceparent: "00-ab-cd-01", flag: true, off: false, count: -7, zero: 0 },
          headers: { idempotency_key: "a b", "X-Source": "ü", empty: "", truthy: "true", number: "1" },
        }),
      ),
    );

    fact("with only the required attributes", (stage) =>
      arrives(stage, createMessage({ id: "m1", source: "/", type: stage.event.type, topic: stage.event.topic })),
    );

    fact("without data", (stage) => arrives(stage, stage.message("m1", { data: new Uint8Array(0) })));

    fact("with every byte", (stage) =>
      arrives(
        stage,
        stage.message("m1", { data: Uint8Array.from({ length: 512 }, (_, n) => n), datacontenttype: "a/b" }),
      ),
    );

    fact("with half a megabyte", (stage) =>
      arrives(stage, stage.message("m1", { data: new Uint8Array(512 * 1024).fill(0xc3) })),
    );

    fact("with many and large headers", (stage) => {
      const names = Array.from({ length: 100 }, (_, index) => [`header-${index}`, `${index} ∞ `.padEnd(300, "é")]);
      return arrives(stage, stage.message("m1", { headers: { empty: "", ...Object.fromEntries(names) } }));
    });

    fact("whatever it contains", async (stage) => {
      const { event, send, consume } = stage;
      const consumer = consume();
      const one = arbitraryMessage().map((message) =>
        createMessage({ ...message, type: event.type, topic: event.topic }),
      );
      await fc.assert(
        fc.asyncProperty(fc.array(one, { minLength: 1, maxLength: 10 }), async (messages) => {
          await send(...messages);
          const deliveries = await consumer.take(messages.length);
          await Promise.all(deliveries.map((delivery) => delivery.ack()));
          const sorted = (all: readonly Message[]) => all.map((message) => JSON.stringify(comparable(message))).sort();
          const plain = (all: readonly Message[]) => sorted(all).map((text) => JSON.parse(text));
          expect(plain(deliveries.map(({ message }) => message))).toStrictEqual(plain(messages));
        }),
        { numRuns: 15 },
      );
    });
  });
}
