import { PostboxError } from "../../errors.js";
import { reasonOf } from "../../internal/reason-of.js";
import type { Message } from "../../message/message.js";
import type { Outcome } from "../../transport.js";
import { code, codeText } from "./error-codes.js";
import type { Produced } from "./producer.js";

const sent: Outcome = { status: "sent" };

function rejected(error: PostboxError): Outcome {
  return { status: "rejected", error };
}

/** The outcome of a message whose record has an answer. */
export function producedOutcome(
  produced: Exclude<Produced, { readonly how: "lost" }>,
  { id }: Message,
  topic: string,
): Outcome {
  switch (produced.how) {
    case "stored":
      return sent;
    case "behind":
      return behind(id);
    case "unavailable": {
      const why = `its partition of ${topic} is unavailable: ${produced.why}`;
      const text = `message ${id} was not sent: ${why}; it is sent again`;
      return { status: "unavailable", error: new PostboxError("transport-down", text) };
    }
    case "refused":
      return refused(id, topic, produced.code);
  }
}

function refused(id: string, topic: string, number: number): Outcome {
  if (number === code.tooLarge || number === code.batchTooLarge) {
    const text = `message ${id} is too large for topic ${topic}; send a reference instead, or raise max.message.bytes`;
    return rejected(new PostboxError("message-too-large", text));
  }
  if (number === code.invalidRecord) {
    const text = `topic ${topic} does not take message ${id}: ${codeText(number)}; a compacted topic needs keys`;
    return rejected(new PostboxError("publish-failed", text));
  }
  if (number === code.topicForbidden || number === code.clusterForbidden) return forbidden(id, topic);
  const text = `topic ${topic} did not take message ${id}: ${codeText(number)}; it is sent again`;
  return { status: "failed", error: new PostboxError("publish-failed", text) };
}

export function forbidden(id: string, topic: string): Outcome {
  const text = `the user may not write message ${id} to topic ${topic}; grant the right to write there`;
  return { status: "failed", error: new PostboxError("publish-failed", text) };
}

/** An earlier message of the key was not sent. */
export function behind(id: string): Outcome {
  const text = `message ${id} was held back: an earlier one of its key failed; send both again`;
  return { status: "failed", error: new PostboxError("publish-failed", text), uncounted: true };
}

export function tooLarge(id: string, bytes: number, most: number, topic: string): Outcome {
  const text = `message ${id} has ${bytes} bytes, topic ${topic} takes ${most}; send a reference instead`;
  return rejected(new PostboxError("message-too-large", text));
}

export function unencodable(id: string, cause: unknown): Outcome {
  if (cause instanceof PostboxError) return rejected(cause);
  const text = `message ${id} cannot be encoded: ${reasonOf(cause)}; correct the message`;
  return rejected(new PostboxError("message-invalid", text, { cause }));
}

export function noTopic(id: string, topic: string): PostboxError {
  const text = `there is no topic ${topic} for message ${id}; make it, or call sender.setup([event])`;
  return new PostboxError("unroutable", text);
}

export function invalidTopic(id: string, topic: string): Outcome {
  const text = `message ${id} has no possible topic of Kafka, ${topic}; use 1 to 249 letters, digits, '.', '_' and '-'`;
  return rejected(new PostboxError("message-invalid", text));
}
