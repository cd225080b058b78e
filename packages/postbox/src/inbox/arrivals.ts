import { createHash } from "node:crypto";
import { PermanentError } from "../errors.js";
import { answered } from "../internal/answer.js";
import type { Message } from "../message/message.js";
import type { Arrival } from "../store.js";
import type { Origin } from "../transport.js";
import type { CheckedInbox } from "./inbox-options.js";

/** A message with its origin and its consumer. */
export interface Came {
  readonly message: Message;
  readonly consumer: string;
  readonly origin?: Origin;
  readonly handler?: string;
}

/** What an inbox remembers of a message. Throws `message-id-missing` if the message has nothing to identify it. */
export function arrivalOf(came: Came, { id, detectMismatch, storePayload }: CheckedInbox): Arrival {
  const { message, consumer, origin, handler } = came;
  const known = knownBy(message, consumer, id);
  return {
    consumer,
    message,
    // Shortened and encoded, since indexes limit lengths, and databases limit characters.
    id:
      known.length <= longestId && !unstorable.test(known) ? known : `sha256:${digest(Buffer.from(known, "utf16le"))}`,
    ...(detectMismatch && { hash: digest(message.data) }),
    ...(storePayload && { storePayload }),
    ...(origin && { origin }),
    ...(handler !== undefined && { handler }),
  };
}

/** Identifies a message without an id by its place at the broker, if that is stable. */
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
    const known = answered(id(message));
    if (typeof known === "string" && known !== "") return known;
  } catch (thrown) {
    cause = thrown;
  }
  throw new PermanentError(
    `a message of type ${message.type} has no id for the inbox of ${consumer}, so it is unknown whether it was ` +
      "handled; " +
      "let its publisher set one, or correct the inbox's option 'id'",
    { code: "message-id-missing", cause },
  );
}

function digest(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("base64url");
}

/** Why a message is not handled that is known with other data, or is older than the inbox remembers. */
export function refusalOf(remembered: "differs" | "too-old", { consumer, id }: Arrival): PermanentError {
  if (remembered === "differs") {
    return new PermanentError(
      `${consumer} knows message ${id} with other data than this one has; find out who published two with one id`,
      { code: "message-differs" },
    );
  }
  return new PermanentError(
    `message ${id} is older than the inbox of ${consumer} remembers, so it is unknown whether it was handled; ` +
      "retry it if it was not, or raise retentionMs",
    { code: "message-too-old" },
  );
}
