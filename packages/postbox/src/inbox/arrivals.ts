import { createHash } from "node:crypto";
import { PermanentError } from "../errors.js";
import type { Message } from "../message/message.js";
import type { Arrival } from "../store.js";
import type { Origin } from "../transport.js";
import type { CheckedInbox } from "./inbox-options.js";

/** Where a message came from, and who handles it. */
export interface Came {
  readonly message: Message;
  readonly consumer: string;
  readonly origin?: Origin;
  readonly handler?: string;
}

/** Makes what is remembered of a message. Throws `message-id-missing` where it has nothing to be known by. */
export function arrivalOf(came: Came, { id, detectMismatch, storePayload }: CheckedInbox): Arrival {
  const { message, consumer, origin, handler } = came;
  const known = knownBy(message, consumer, id);
  return {
    consumer,
    message,
    // No index takes any length, and no database any character.
    id:
      known.length <= longestId && !unstorable.test(known) ? known : `sha256:${digest(Buffer.from(known, "utf16le"))}`,
    ...(detectMismatch && { hash: digest(message.data) }),
    ...(storePayload && { storePayload }),
    ...(origin && { origin }),
    ...(handler !== undefined && { handler }),
  };
}

/** For a message without an id: known by its place at the broker, if that has one that does not change. */
export function arrivalByPlace({ message, consumer, origin }: Came): Arrival | undefined {
  if (origin?.offset === undefined) return undefined;
  const id = `sha256:${digest(JSON.stringify([origin.partition, origin.offset]))}`;
  return { consumer, message, id, origin };
}

const longestId = 500;
const unstorable = /\0|\p{Surrogate}/u;

function knownBy(message: Message, consumer: string, id: CheckedInbox["id"]): string {
  let cause: unknown;
  try {
    const known = id(message);
    if (typeof known === "string" && known !== "") return known;
  } catch (thrown) {
    cause = thrown;
  }
  throw new PermanentError(
    `a message of type ${message.type} has no id for the inbox of ${consumer}, so nobody can tell whether it was ` +
      "handled; " +
      "let its publisher give one, or mend the inbox's option 'id'",
    { code: "message-id-missing", cause },
  );
}

function digest(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("base64url");
}

/** Why one that is known with other data, or too old to be known, is not handled. */
export function refusalOf(remembered: "differs" | "too-old", { consumer, id }: Arrival): PermanentError {
  if (remembered === "differs") {
    return new PermanentError(
      `${consumer} knows message ${id} with other data than this one has; find out who published two with one id`,
      { code: "message-differs" },
    );
  }
  return new PermanentError(
    `message ${id} is older than the inbox of ${consumer} remembers, so nobody knows whether it was handled; ` +
      "retry it if it was not, or raise retentionMs",
    { code: "message-too-old" },
  );
}
