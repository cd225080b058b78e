/** How long a test waits for something that takes milliseconds on an idle machine, and much longer on a stalled one. */
export const patienceMs = 20_000;

/**
 * Resolves with the promise, or rejects after `patienceMs` with an error that says what was awaited and what happened
 * instead.
 */
export async function patiently<T>(promise: Promise<T>, complaint: () => string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${patienceMs} ms: ${complaint()}`)), patienceMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
