import type { Message, Sender } from "postbox";
import { patiently } from "./patience.js";

/** A sender that accepts and keeps every message, in the order in which it accepted them. */
export interface RecordingSender extends Sender {
  readonly messages: readonly Message[];
  ids(): string[];
  /** Resolves when this many messages have been accepted; fails after five seconds. */
  until(count: number): Promise<void>;
}

/** Options of `recordingSender`. */
export interface RecordingOptions {
  /** Defaults to true. */
  readonly keepsOrder?: boolean;
  /** Awaited before each call, for example a gate that a test opens. Defaults to nothing. */
  before?(messages: readonly Message[]): Promise<void> | void;
}

/**
 * Makes a sender that records every message and confirms it.
 *
 * @example
 * ```ts
 * const sender = recordingSender();
 * await createRelay(store, sender).start();
 * await sender.until(1);
 * ```
 */
export function recordingSender({ keepsOrder = true, before }: RecordingOptions = {}): RecordingSender {
  const messages: Message[] = [];
  const watchers: { readonly count: number; resolve(): void }[] = [];
  return {
    name: "recording",
    keepsOrder,
    messages,
    ids: () => messages.map(({ id }) => id),
    async until(count) {
      if (messages.length >= count) return;
      const taken = new Promise<void>((resolve) => watchers.push({ count, resolve }));
      await patiently(taken, () => `${count} messages sent; sent were ${messages.map(({ id }) => id).join(", ")}`);
    },
    async send(batch, settled) {
      await before?.(batch);
      for (const [index, message] of batch.entries()) {
        messages.push(message);
        settled(index, { status: "sent" });
      }
      for (const { count, resolve } of watchers) if (messages.length >= count) resolve();
    },
  };
}
