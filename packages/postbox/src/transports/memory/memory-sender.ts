import { PostboxError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import type { Sender } from "../../transport.js";
import { type OnUnroutable, unroutableOutcome } from "../unroutable.js";
import { copyOf, type MemoryQueue } from "./memory-queue.js";
import { orderedSender } from "./ordered-sender.js";

/** Routes each message to the queues that are bound for it. */
export function memorySender(
  queuesFor: (message: Message) => ReadonlySet<MemoryQueue>,
  onUnroutable: OnUnroutable,
  runtime: Runtime,
): Sender {
  return orderedSender("memory", (message) => {
    const targets = queuesFor(message);
    if (targets.size === 0) return unroutableOutcome(onUnroutable, message, unroutable(message), runtime);
    const copies = [...targets].map((target) => ({ target, copy: copyOf(message) }));
    for (const { target, copy } of copies) target.publish(copy);
    return { status: "sent" };
  });
}

function unroutable({ id, topic, type }: Message): PostboxError {
  return new PostboxError(
    "unroutable",
    `no queue wants message ${id} of type ${type} in topic ${topic}; start its consumer first, ` +
      "or make its queue with messaging.prepare() there",
  );
}
