import type { Sender } from "postbox";
import { createProgress } from "./progress.js";

/** A sender that only counts messages and records when they were sent. */
export interface CountingSender extends Sender {
  readonly sent: number;
  /** Resolves when `expected` messages have been sent. */
  readonly reached: Promise<void>;
  /** The rows per second between two counts. */
  rate(from: number, to: number): number;
}

export interface CountingSenderOptions {
  readonly expected: number;
  /** How long each call takes; calls run one at a time. Defaults to 0. */
  readonly callMs?: number;
  /** Called when a call of `send` begins. Defaults to nothing. */
  readonly onSend?: () => void;
  /** Called when a call of `send` has ended and its messages are counted. Defaults to nothing. */
  readonly onSent?: () => void;
}

export function countingSender({ expected, callMs = 0, onSend, onSent }: CountingSenderOptions): CountingSender {
  const progress = createProgress();
  let reach = () => {};
  const reached = new Promise<void>((resolve) => {
    reach = resolve;
  });
  const sent = { status: "sent" } as const;
  let line = Promise.resolve();

  return {
    name: "nowhere",
    keepsOrder: true,
    get sent() {
      return progress.count;
    },
    reached,
    async send(messages, settled) {
      onSend?.();
      if (callMs > 0) {
        line = line.then(() => new Promise((resolve) => setTimeout(resolve, callMs)));
        await line;
      }
      for (let index = 0; index < messages.length; index++) settled(index, sent);
      progress.add(messages.length);
      if (progress.count >= expected) reach();
      onSent?.();
    },
    rate: progress.rate,
  };
}
