import { setTimeout as sleep } from "node:timers/promises";
import { within } from "./time-limit.js";

/** Something that hands on what is sent to it. */
export interface Line {
  /** Resolves when what was sent is committed. */
  send(): Promise<void>;
  stop(): Promise<void>;
}

export interface LatencyOptions {
  readonly samples: number;
  /** How long the system is left idle between two: drawn at random, so that no timer of a line is always met alike. */
  readonly pauseMs: readonly [number, number];
}

const warmUpShare = 0.1;
const limitMs = 10_000;

/**
 * Milliseconds from the answer to COMMIT until the handler is called, one message at a time. A handler that is called
 * before the answer has arrived took none. `open` gets what the handler has to call.
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
