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
 * could still do harm with and never rejects, and rejects with `Abandoned` while `work` may go on.
 */
export function untilAborted<R>(work: () => Promise<R>, signal: AbortSignal, end: () => Promise<void>): Promise<R> {
  // One promise, where a race would make eight for every message that is handled.
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    const abandon = () => void end().then(() => reject(new Abandoned(signal.reason)));
    const abort = () => {
      timer = setTimeout(abandon, graceMs);
    };
    const over = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
    };
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
    work().then(
      (result) => {
        over();
        resolve(result);
      },
      (error) => {
        over();
        reject(error);
      },
    );
  });
}
