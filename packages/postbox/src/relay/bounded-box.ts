import { PostboxError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { withTimeout } from "../internal/with-timeout.js";
import type { Box } from "../store.js";

/**
 * The same box, but no call takes longer than `limitMs`: a connection that was cut without a word would otherwise stop a
 * relay for ever, and its stopping too. A call that was given up may still have happened; every verb bears a repetition.
 */
export function boundedBox(box: Box, limitMs: number, runtime: Runtime): Box {
  const bounded = <R>(verb: string, call: (signal: AbortSignal) => Promise<R>): Promise<R> => {
    const late = () =>
      new PostboxError("store-timeout", `the store did not ${verb} within ${limitMs} ms; the relay tries again`);
    return withTimeout(runtime, limitMs, late, call);
  };
  return {
    ...(box.inCommitOrder && { inCommitOrder: true }),
    renew: (owner, leaseMs, order) => bounded("renew", (signal) => box.renew(owner, leaseMs, order, signal)),
    own: (owner, most, options) => bounded("own", (signal) => box.own(owner, most, options, signal)),
    release: (owner, lanes) => bounded("release", (signal) => box.release(owner, lanes, signal)),
    read: (lanes, options) => bounded("read", (signal) => box.read(lanes, options, signal)),
    suspect: (lanes, rows) => bounded("write to", (signal) => box.suspect(lanes, rows, signal)),
    due: (lanes, options) => bounded("read", (signal) => box.due(lanes, options, signal)),
    late: (gaps, limit, options) => bounded("read", (signal) => box.late(gaps, limit, options, signal)),
    promote: (limit) => bounded("append what is due to", (signal) => box.promote(limit, signal)),
    settle: (lanes, settlements, options) =>
      bounded("settle", (signal) => box.settle(lanes, settlements, options, signal)),
  };
}
