import { type Crowd, createCrowd, type Member } from "./crowd.js";

interface Waiting extends Member {
  task(): void;
}

/** The tasks that wait for each signal. */
const crowds = new WeakMap<AbortSignal, Crowd<Waiting>>();

/**
 * Calls `task` when the signal is aborted, or at once if it is already, unless the returned function is called first.
 * For signals that outlive many waits: a listener for each would cost more, and leave more to the garbage collector.
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
    // False if the signal has been aborted meanwhile, or this was called before.
    if (waiting.place !== -1) crowd.remove(waiting);
  };
}

function crowdOf(signal: AbortSignal): Crowd<Waiting> {
  const crowd = createCrowd<Waiting>();
  crowds.set(signal, crowd);
  const abort = () => {
    for (const waiting of crowd) {
      // One task may have cancelled another.
      if (waiting.place === -1) continue;
      crowd.remove(waiting);
      waiting.task();
    }
  };
  signal.addEventListener("abort", abort, { once: true });
  return crowd;
}

function nothing(): void {}
