import { PostboxError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { withTimeout } from "../internal/with-timeout.js";
import type { Box } from "../store.js";

/**
 * The same box, but every call times out after `limitMs`. Otherwise a connection that was cut silently would block a
 * relay, and its stop, for ever. The store may still carry out a call that timed out, so every verb can safely be
 * repeated.
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
