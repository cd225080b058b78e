import { ConfigError, PostboxError, PublishError } from "../errors.js";
import { runtimeWith } from "../internal/runtime.js";
import { withTimeout } from "../internal/with-timeout.js";
import { callback, positive } from "../options.js";
import type { Telemetry } from "../telemetry/events.js";
import { telling } from "../telemetry/telling.js";
import type { Outcome, Sender } from "../transport.js";
import { type Publisher, type PublisherOptions, publisherTo } from "./publisher.js";

/** Options of `createPublisher`. */
export interface DirectPublisherOptions extends PublisherOptions {
  /** How long the broker may take to confirm. Defaults to 10,000. */
  readonly publishTimeoutMs?: number;
  /** Receives its events. Defaults to warnings and errors on the console; `silent` turns that off. */
  readonly telemetry?: Telemetry;
}

/**
 * A publisher straight to the broker. It resolves when the broker has confirmed every message, except those that the
 * sender drops by its options (`publisher.dropped`). It ignores your transaction; use an outbox for that. Rejects with
 * a `PublishError` that lists the messages which were not sent, or with a `TransportDownError` if the broker cannot be
 * reached.
 *
 * @example
 * ```ts
 * const publisher = createPublisher(sender, { source: "/orders" });
 * await publisher.publish(OrderPlaced, { orderId: "1", total: 20 });
 * ```
 */
export function createPublisher(sender: Sender, options: DirectPublisherOptions): Publisher {
  const { into } = publisherTo("createPublisher", options, { publishTimeoutMs: positive, telemetry: callback });
  const { publishTimeoutMs = 10_000 } = options;
  const runtime = runtimeWith(options.runtime);
  const telemetry = telling(options.telemetry);
  return into(async (messages) => {
    const waiting = messages.find(({ deliverAt }) => deliverAt !== undefined);
    if (waiting !== undefined) {
      throw new ConfigError(
        "option-invalid",
        `createPublisher: ${waiting.type} has 'deliverAt', and only an outbox can wait; publish it there, ` +
          "or leave it out",
        { path: "deliverAt" },
      );
    }
    const outcomes: (Outcome | undefined)[] = messages.map(() => undefined);
    const settled = (index: number, outcome: Outcome) => {
      outcomes[index] = outcome;
    };
    const late = () =>
      new PostboxError(
        "publish-timeout",
        `${sender.name} did not confirm within ${publishTimeoutMs} ms; publish again`,
      );
    await withTimeout(runtime, publishTimeoutMs, late, (signal) => sender.send(messages, settled, signal));
    const failures = outcomes.flatMap((outcome, index) => {
      if (outcome?.status === "sent") return [];
      const id = messages[index]?.id as string;
      if (outcome?.status !== "dropped") {
        return [{ index, id, error: outcome?.error ?? new Error("no outcome was reported") }];
      }
      telemetry({ name: "publisher.dropped", sender: sender.name, id, error: outcome.error });
      return [];
    });
    if (failures.length > 0) throw new PublishError(failures, messages.length);
  });
}
