import { delayAfter, exponential } from "../backoff.js";
import { PostboxError } from "../errors.js";
import { answered } from "../internal/answer.js";
import { reasonOf } from "../internal/reason-of.js";
import type { Runtime } from "../internal/runtime.js";
import type { Message } from "../message/message.js";
import type { OptionRule } from "../options.js";
import type { Outcome } from "../transport.js";

/**
 * What to do with a message that no queue is bound for. `park`: it fails, so that the relay retries it, and parks it
 * when its attempts are spent. `drop`: it leaves its box, with an entry in the audit. `wait`: it is retried until a
 * queue is bound, with delays that grow to a minute, and spends no attempts; later messages of its key wait behind it.
 */
export type Unroutable = "park" | "drop" | "wait";

/** One policy for all messages, or a function of the message. If the function throws, its message is rejected. */
export type OnUnroutable = Unroutable | ((message: Message) => Unroutable);

const choices: readonly unknown[] = ["park", "drop", "wait"];

/** The rule of `checkOptions` for the option `onUnroutable`. */
export const onUnroutableRule: OptionRule = {
  expected: '"park", "drop", "wait" or a function of the message',
  test: (value) => choices.includes(value) || typeof value === "function",
};

/**
 * The outcome of a message that failed with `error` because no queue is bound for it.
 *
 * @example
 * ```ts
 * const error = new PostboxError("unroutable", "no queue takes this event");
 * const outcome = unroutableOutcome("park", message, error, runtimeWith());
 * ```
 */
export function unroutableOutcome(
  onUnroutable: OnUnroutable,
  message: Message,
  error: PostboxError,
  { now, random }: Pick<Runtime, "now" | "random">,
): Outcome {
  let chosen: unknown = onUnroutable;
  if (typeof onUnroutable === "function") {
    try {
      chosen = answered(onUnroutable(message));
    } catch (cause) {
      return wrong(message, `threw: ${reasonOf(cause)}`, cause);
    }
  }
  switch (chosen) {
    case "park":
      return { status: "failed", error };
    case "drop":
      return { status: "dropped", error };
    case "wait": {
      // By the message's age, which every relay knows: nothing has to be stored, and a restart changes nothing.
      const ageMs = message.time === undefined ? longestMs : now() - Date.parse(message.time);
      return { status: "failed", error, uncounted: true, retryInMs: delayAfter(backoff, ageMs, random) };
    }
    default:
      return wrong(message, 'answered neither "park" nor "drop" nor "wait"');
  }
}

const longestMs = 60_000;
const backoff = exponential({ maxMs: longestMs });

function wrong({ id, type }: Message, what: string, cause?: unknown): Outcome {
  const text = `no queue takes message ${id} of type ${type}, and 'onUnroutable' ${what}; correct 'onUnroutable'`;
  return { status: "rejected", error: new PostboxError("message-invalid", text, { cause }) };
}
