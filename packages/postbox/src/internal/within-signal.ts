/** The result of `work`, unless the signal is aborted first: then its reason, and what `work` does later is ignored. */
export async function withinSignal<R>(signal: AbortSignal, work: Promise<R>): Promise<R> {
  let abort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
  work.catch(() => {});
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
