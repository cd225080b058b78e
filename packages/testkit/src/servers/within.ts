/** Resolves with `promise`, or rejects with `late()` after `timeoutMs`. */
export async function within<T>(timeoutMs: number, promise: Promise<T>, late: () => string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(late())), timeoutMs);
  });
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
