import type { Sender } from "postbox";
import { createProgress } from "./progress.js";

/** A sender that does nothing but count, and note when. */
export interface CountingSender extends Sender {
  readonly sent: number;
  /** Resolves when this many messages have been sent. */
  readonly reached: Promise<void>;
  /** Rows per second between two counts. */
  rate(from: number, to: number): number;
}

export interface CountingSenderOptions {
  readonly expected: number;
  /** How long every call takes, one at a time. Defaults to no time at all. */
  readonly callMs?: number;
  /** Hears of every call as it begins. Defaults to nobody. */
  readonly onSend?: () => void;
  /** Hears of every call when it is over, and counted. Defaults to nobody. */
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
