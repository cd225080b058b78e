import { whenAborted } from "../internal/when-aborted.js";

/** A handler that listens to its signal ends by itself within this time, and its connection can be used again. */
const graceMs = 250;
/** How long COMMIT, ROLLBACK and the forced end may take after that. */
const limitMs = 6_000;

/** Why a transaction ends whose work still runs, whose connection no longer answers, or whose caller has been told that it failed. */
export class Abandoned extends Error {
  /** `byForce`: its session was ended, so nothing can be written to its connection, not even a ROLLBACK. */
  constructor(
    readonly reason: unknown,
    readonly byForce = true,
  ) {
    super("the transaction was given up");
  }
}

/** A transaction that ends when its signal is aborted, whatever its work and its connection do. */
export interface Bounded {
  /** The caller has been told that it failed, so its work must not start. */
  readonly over: boolean;
  /** The transaction has a connection; `close` closes it at this end. */
  connected(close: () => void): void;
  /**
   * The result of `work`; calls `ended` when it is known. When the signal is aborted and `work` does not end soon after, calls `force`,
   * which takes from it all that it could still do harm with and never rejects, and rejects with `Abandoned` while `work` may go on.
   */
  within<R>(work: () => Promise<R>, force: () => Promise<void>, ended: () => void): Promise<R>;
}

/**
 * The result of `begin`. When the signal is aborted and the transaction does not end soon after:
 *
 * - before its work has begun, closes its connection: nothing is lost with it;
 * - during its work, ends it by force;
 * - at its COMMIT or ROLLBACK, gives it a few seconds more, and then ends it by force as well.
 *
 * Rejects with `Abandoned` then. A library that hides its connection may keep it for longer.
 */
export function untilAborted<R>(signal: AbortSignal, begin: (bounded: Bounded) => Promise<R>): Promise<R> {
  // By hand, where races would make eight promises for every message that is handled.
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    let close = () => {};
    const connected = (given: () => void) => {
      close = given;
      if (bounded.over) close();
    };
    const bounded = { over: false, connected, within };
    const giveUp = () => {
      bounded.over = true;
      close();
      reject(new Abandoned(signal.reason));
    };
    /** What is done first about a transaction that does not end. */
    let abandon: (() => void) | undefined = giveUp;

    function within<W>(work: () => Promise<W>, force: () => Promise<void>, ended: () => void): Promise<W> {
      return new Promise((resolveWork, rejectWork) => {
        const fail = (error: unknown) => {
          abandon = undefined;
          ended();
          rejectWork(error);
        };
        close = () => void force();
        abandon = () => void force().then(() => fail(new Abandoned(signal.reason)));
        work().then((result) => {
          abandon = undefined;
          ended();
          resolveWork(result);
        }, fail);
      });
    }

    const abort = () => {
      timer = setTimeout(() => {
        timer = setTimeout(giveUp, limitMs);
        abandon?.();
      }, graceMs);
    };
    const cancel = whenAborted(signal, abort);
    const over = () => {
      clearTimeout(timer);
      cancel();
    };
    begin(bounded).then(
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
