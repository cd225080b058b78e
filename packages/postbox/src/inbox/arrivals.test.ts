import { expect, it } from "vitest";
import { createMessage } from "../message/message.js";
import { arrivalOf } from "./arrivals.js";
import { checkInbox } from "./inbox-options.js";

const message = createMessage({ id: "m1", source: "/test", type: "test.Happened", data: new Uint8Array() });

/** The stored id of a message whose id function returns this text. */
function storedId(known: string): string {
  const options = checkInbox("inbox", { id: () => known }, 1_000);
  return arrivalOf({ message, consumer: "billing" }, options).id;
}

it("stores an id as it is, if a database can store it", () => {
  for (const id of ["m1", "ü 😀", "x".repeat(500)]) expect(storedId(id)).toBe(id);
});

it("refuses an id function that answers a promise, whose rejection does not end the process", async () => {
  const id = (() => Promise.reject(new Error("not awaited"))) as unknown as () => string;
  const options = checkInbox("inbox", { id }, 1_000);
  expect(() => arrivalOf({ message, consumer: "billing" }, options)).toThrow(/^\[message-id-missing\]/);
  // Node.js reports an unhandled rejection after this.
  await new Promise(setImmediate);
});

it("stores the digest of an id that no database stores, a different one for each", () => {
  const unstorable = ["\0", "a\0", "\ud800", "\udbff", "a\ud800", "\udc00", "x".repeat(501), `${"x".repeat(500)}y`];
  const stored = unstorable.map(storedId);
  for (const id of stored) expect(id).toMatch(/^sha256:[\w-]{43}$/);
  expect(new Set(stored).size).toBe(unstorable.length);
});
