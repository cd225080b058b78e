/** A handler that listens to its signal ends by itself within this time, and its connection can be used again. */
const graceMs = 250;

/** Why a transaction ends whose work still runs: it was ended by force. */
export class Abandoned extends Error {
  constructor(readonly reason: unknown) {
    super("the transaction was ended by force");
  }
}

/**
 * The result of `work`. When the signal is aborted and `work` does not end soon after, calls `end`, which takes from it all that it
 * could still do harm with, and rejects with `Abandoned` while `work` may go on.
 */
export async function untilAborted<R>(
  work: () => Promise<R>,
  signal: AbortSignal,
  end: () => Promise<void>,
): Promise<R> {
  const working = work();
  let timer: NodeJS.Timeout | undefined;
  let abort = () => {};
  const late = new Promise<undefined>((resolve) => {
    abort = () => {
      timer = setTimeout(() => resolve(undefined), graceMs);
    };
  });
  signal.addEventListener("abort", abort, { once: true });
  if (signal.aborted) abort();
  try {
    const first = await Promise.race([working.then((value) => ({ value })), late]);
    if (first !== undefined) return first.value;
    await end();
    throw new Abandoned(signal.reason);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
    // It may still fail, with no one left to tell.
    working.catch(() => {});
  }
}
