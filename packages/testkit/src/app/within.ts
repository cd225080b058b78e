import { setTimeout as after } from "node:timers/promises";

/** The promise, or when it takes longer than `ms` of real time, the error. */
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
