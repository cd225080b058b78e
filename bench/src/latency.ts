import { setTimeout as sleep } from "node:timers/promises";
import { within } from "./time-limit.js";

/** A path from a message to its handler. */
export interface Line {
  /** Resolves when the message is committed. */
  send(): Promise<void>;
  stop(): Promise<void>;
}

export interface LatencyOptions {
  readonly samples: number;
  /**
   * The range of the random idle time between two messages. It is random so that messages do not meet a timer of the
   * line at the same phase each time.
   */
  readonly pauseMs: readonly [number, number];
}

const warmUpShare = 0.1;
const limitMs = 10_000;

/**
 * Returns the milliseconds from the answer to COMMIT until the handler is called, one message at a time. If the handler
 * is called before the answer arrives, the latency counts as 0. `open` receives the function that the handler must
 * call.
 */
export async function latencies(
  open: (called: () => void) => Promise<Line>,
  { samples, pauseMs: [least, most] }: LatencyOptions,
): Promise<readonly number[]> {
  let arrive = () => {};
  const line = await open(() => arrive());
  const measured: number[] = [];
  try {
    for (let sample = -Math.ceil(samples * warmUpShare); sample < samples; sample++) {
      await sleep(least + Math.random() * (most - least));
      const arrival = new Promise<number>((resolve) => {
        arrive = () => resolve(performance.now());
      });
      await line.send();
      const committedAt = performance.now();
      const calledAt = await within(limitMs, () => "a message did not arrive", arrival);
      if (sample >= 0) measured.push(Math.max(0, calledAt - committedAt));
    }
  } finally {
    await line.stop();
  }
  return measured;
}
