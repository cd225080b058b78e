import fc from "fast-check";
import type { Message } from "postbox";
import { createMessage } from "postbox/store";

/** Text that the envelope accepts: no control characters, noncharacters or lone surrogates. */
const carried = /^[^\p{Cc}\p{Cs}\u{fdd0}-\u{fdef}\u{fffe}\u{ffff}]+$/u;

/** The strangest text that the envelope accepts, with characters that break naive escaping. */
function text(maxBytes: number): fc.Arbitrary<string> {
  return fc
    .oneof(
      { weight: 4, arbitrary: fc.string({ unit: "grapheme", minLength: 1, maxLength: 30 }) },
      {
        weight: 1,
        arbitrary: fc.constantFrom("'; drop table x; --", '"', "\\", "\\x00", "{}", "null", "$1", "%s", " ", "😀é"),
      },
    )
    .filter((value) => carried.test(value) && Buffer.byteLength(value) <= maxBytes);
}

const time = fc.constantFrom(
  "2026-01-31T12:00:00Z",
  "1969-12-31T23:59:59.123456789Z",
  "2026-06-30T23:59:59.000001+05:45",
  "0999-01-01T00:00:00-11:00",
);

const extensionValue = fc.oneof(text(200), fc.integer({ min: -0x7fffffff, max: 0x7fffffff }), fc.boolean());
const headerName = fc.oneof(
  fc
    .stringMatching(/^[A-Za-z0-9._-]{1,20}$/)
    .filter((name) => !/^(ce[-_]|cloudevents|content-type|x-|postbox)/i.test(name)),
  fc.constantFrom("idempotency_key", "x-source", "__proto__", "constructor"),
);

/**
 * Any message that `createMessage` accepts, up to a few hundred bytes.
 *
 * @example
 * ```ts
 * await fc.assert(fc.asyncProperty(arbitraryMessage(), async (message) => toCloudEventJson(message).length > 0));
 * ```
 */
export function arbitraryMessage(): fc.Arbitrary<Message> {
  return fc
    .record(
      {
        id: text(255),
        source: text(300),
        type: text(255),
        topic: text(255),
        subject: text(300),
        key: text(300),
        time,
        datacontenttype: fc.constantFrom(
          "application/json",
          "application/octet-stream",
          "text/plain; charset=utf-8",
          "application/cloudevents+json",
        ),
        dataschema: text(300),
        extensions: fc.dictionary(fc.stringMatching(/^x[a-z0-9]{0,19}$/), extensionValue, { maxKeys: 4 }),
        headers: fc
          .array(fc.tuple(headerName, fc.oneof(text(200), fc.constant(""))), { maxLength: 4 })
          .map((pairs) => Object.fromEntries(pairs)),
        data: fc.uint8Array({ maxLength: 200 }),
      },
      { requiredKeys: ["id", "source", "type"] },
    )
    .map((input) => createMessage(input));
}
