import { whenAborted } from "../internal/when-aborted.js";

/** A handler that observes its signal ends within this time, and its connection stays usable. */
const graceMs = 250;
/** How long COMMIT, ROLLBACK and the forced end may take after that. */
const limitMs = 6_000;

/** Ends a transaction whose work still runs, whose connection does not answer, or whose caller already saw it fail. */
export class Abandoned extends Error {
  /** `byForce`: its session was ended, so nothing may be written to its connection, not even a ROLLBACK. */
  constructor(
    readonly reason: unknown,
    readonly byForce = true,
  ) {
    super("the transaction was given up");
  }
}

/** A transaction that ends when its signal is aborted, even if its work or its connection hangs. */
export interface Bounded {
  /** The caller has been told that the transaction failed, so `work` must not start. */
  readonly over: boolean;
  /** Reports that the transaction has a connection. `close` closes it on this side. */
  connected(close: () => void): void;
  /**
   * Runs `work` and calls `ended` when its result is known. If the signal is aborted and `work` does not end soon
   * after, it calls `force`, then rejects with `Abandoned` while `work` may still run. `force` must leave `work`
   * nothing to do harm with, and must never reject.
   */
  within<R>(work: () => Promise<R>, force: () => Promise<void>, ended: () => void): Promise<R>;
}

/**
 * Runs `begin`. If the signal is aborted and the transaction does not end soon after:
 *
 * - Before its work has begun, it closes the connection; nothing is lost.
 * - During its work, it ends the transaction by force.
 * - During COMMIT or ROLLBACK, it waits a few seconds more, then ends the transaction by force.
 *
 * It then rejects with `Abandoned`. A library that hides its connection may hold it for longer.
 */
export function untilAborted<R>(signal: AbortSignal, begin: (bounded: Bounded) => Promise<R>): Promise<R> {
  // Written by hand, because races would create eight promises per handled message.
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
    /** The first step against a transaction that does not end. */
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
