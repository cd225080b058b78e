import { PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";
import type { Outcome, Sender } from "../../transport.js";

/**
 * A sender that publishes each message and reports it in one synchronous step, so that no later call can overtake a
 * failure. If `publish` throws, the message is rejected: its bytes could not be copied.
 */
export function orderedSender(name: string, publish: (message: Message) => Outcome): Sender {
  const outcomeOf = (message: Message): Outcome => {
    try {
      return publish(message);
    } catch (cause) {
      const text = `message ${message.id} cannot be copied: ${(cause as Error).message}; correct the message`;
      return { status: "rejected", error: new PostboxError("message-invalid", text, { cause }) };
    }
  };
  return {
    name,
    keepsOrder: true,
    async send(messages, settled, signal) {
      signal.throwIfAborted();
      const heldBack = new Set<string>();
      for (const [index, message] of messages.entries()) {
        const { key } = message;
        const outcome = key !== undefined && heldBack.has(key) ? behind(message) : outcomeOf(message);
        if (key !== undefined && outcome.status !== "sent") heldBack.add(key);
        settled(index, outcome);
      }
    },
  };
}

function behind({ id, key }: Message): Outcome {
  const why = `message ${id} was held back: an earlier one of its key '${key}' failed; send both again`;
  return { status: "failed", error: new PostboxError("publish-failed", why), uncounted: true };
}
