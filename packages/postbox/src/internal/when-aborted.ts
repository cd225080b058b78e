import { type Crowd, createCrowd, type Member } from "./crowd.js";

interface Waiting extends Member {
  task(): void;
}

/** Who waits for each signal. */
const crowds = new WeakMap<AbortSignal, Crowd<Waiting>>();

/**
 * Calls `task` when the signal is aborted, or at once if it is, unless the function that it returns is called before.
 * For signals that outlive many waits: to add and remove a listener for each costs more, and leaves more to the garbage
 * collector.
 */
export function whenAborted(signal: AbortSignal, task: () => void): () => void {
  if (signal.aborted) {
    task();
    return nothing;
  }
  const crowd = crowds.get(signal) ?? crowdOf(signal);
  const waiting = { place: -1, task };
  crowd.add(waiting);
  return () => {
    // The signal has been aborted meanwhile, or this was called before.
    if (waiting.place !== -1) crowd.remove(waiting);
  };
}

function crowdOf(signal: AbortSignal): Crowd<Waiting> {
  const crowd = createCrowd<Waiting>();
  crowds.set(signal, crowd);
  const abort = () => {
    for (const waiting of crowd) {
      // One task may have canceled another.
      if (waiting.place === -1) continue;
      crowd.remove(waiting);
      waiting.task();
    }
  };
  signal.addEventListener("abort", abort, { once: true });
  return crowd;
}

function nothing(): void {}
