import { PostboxError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { withTimeout } from "../internal/with-timeout.js";
import type { Box } from "../store.js";

/**
 * The same box, but no call takes longer than `limitMs`: a connection that was cut without a word would otherwise stop a
 * relay for ever, and its stopping too. A call that was given up may still have happened; every verb bears a repetition.
 */
export function boundedBox(box: Box, limitMs: number, runtime: Runtime): Box {
  const bounded = <R>(verb: string, call: () => Promise<R>): Promise<R> => {
    const late = () =>
      new PostboxError("store-failed", `the store did not ${verb} within ${limitMs} ms; it is tried again`);
    return withTimeout(runtime, limitMs, late, call);
  };
  return {
    renew: (owner, leaseMs, order) => bounded("renew", () => box.renew(owner, leaseMs, order)),
    own: (owner, most, options) => bounded("own", () => box.own(owner, most, options)),
    release: (owner, lanes) => bounded("release", () => box.release(owner, lanes)),
    read: (lanes) => bounded("read", () => box.read(lanes)),
    suspect: (lanes, rows) => bounded("write to", () => box.suspect(lanes, rows)),
    due: (lanes) => bounded("read", () => box.due(lanes)),
    late: (gaps, limit) => bounded("read", () => box.late(gaps, limit)),
    promote: (limit) => bounded("append what is due to", () => box.promote(limit)),
    settle: (lanes, settlements, options) => bounded("settle", () => box.settle(lanes, settlements, options)),
  };
}
