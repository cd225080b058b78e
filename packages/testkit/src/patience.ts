/**
 * How long a test waits for something that takes milliseconds on an idle machine, and may take a while on one that
 * stands still.
 */
export const patienceMs = 20_000;

/**
 * The promise itself, or when patience is at its end an error that says what was waited for and what was there instead.
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
