import { setTimeout as after } from "node:timers/promises";

/** Resolves with the promise, or rejects with `error()` if it takes longer than `ms` of real time. */
export async function within<T>(ms: number, promise: Promise<T>, error: () => Error): Promise<T> {
  const ended = new AbortController();
  const late = after(ms, undefined, { signal: ended.signal }).then(() => {
    throw error();
  });
  late.catch(() => {});
  try {
    return await Promise.race([promise, late]);
  } finally {
    ended.abort();
  }
}
