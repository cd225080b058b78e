import { PostboxError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import type { Outcome, Sender } from "../../transport.js";
import { type OnUnroutable, unroutableOutcome } from "../unroutable.js";
import { copyOf, type MemoryQueue } from "./memory-queue.js";

/** Routes each message in the same step in which it reports it, so that no later call can overtake a failure. */
export function memorySender(
  queuesFor: (message: Message) => ReadonlySet<MemoryQueue>,
  onUnroutable: OnUnroutable,
  runtime: Runtime,
): Sender {
  const publish = (message: Message): Outcome => {
    const targets = queuesFor(message);
    if (targets.size === 0) return unroutableOutcome(onUnroutable, message, unroutable(message), runtime);
    try {
      const copies = [...targets].map((target) => ({ target, copy: copyOf(message) }));
      for (const { target, copy } of copies) target.publish(copy);
    } catch (cause) {
      const text = `message ${message.id} cannot be copied: ${(cause as Error).message}; correct the message`;
      return { status: "rejected", error: new PostboxError("message-invalid", text, { cause }) };
    }
    return { status: "sent" };
  };
  return {
    name: "memory",
    keepsOrder: true,
    async send(messages, settled, signal) {
      signal.throwIfAborted();
      const heldBack = new Set<string>();
      for (const [index, message] of messages.entries()) {
        const { key } = message;
        const outcome = key !== undefined && heldBack.has(key) ? behind(message) : publish(message);
        if (key !== undefined && outcome.status !== "sent") heldBack.add(key);
        settled(index, outcome);
      }
    },
  };
}

function unroutable({ id, topic, type }: Message): PostboxError {
  return new PostboxError(
    "unroutable",
    `no queue wants message ${id} of type ${type} in topic ${topic}; start its consumer first, or bind a queue for it`,
  );
}

function behind({ id, key }: Message): Outcome {
  const why = `message ${id} was held back: an earlier one of its key '${key}' failed; send both again`;
  return { status: "failed", error: new PostboxError("publish-failed", why), uncounted: true };
}
