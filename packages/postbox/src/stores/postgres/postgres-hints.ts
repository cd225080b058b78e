import { createHash } from "node:crypto";
import type { Pool } from "pg";
import { coalesced } from "../../internal/coalesced.js";
import { runtimeWith } from "../../internal/runtime.js";
import type { HintListener, Hints } from "../../store.js";
import { requireBox } from "../box-names.js";
import { listen } from "./listen.js";
import type { OpenConnection } from "./own-connection.js";

export interface PostgresHintsOptions<Tx> {
  readonly pool: Pool;
  readonly open: OpenConnection;
  readonly schema: string;
  /** Runs `task` after the commit of `tx`, or says that it cannot. */
  afterCommit(tx: Tx, task: () => void): boolean;
}

/** Keeps hundreds of appends in a second from being as many transactions of their own; a listener looks that often anyway. */
const restMs = 10;
const listening = { checkEveryMs: 5_000, limitMs: 10_000 };

/**
 * Hints through NOTIFY and LISTEN: sent on any connection of the pool, heard on one of its own.
 *
 * In a transaction of its own, and never in the user's: NOTIFY takes a lock on the whole database until its transaction
 * has committed, so that those who notify commit one after the other. Alone, it writes nothing, and waits for no disk.
 */
export function postgresHints<Tx>({ pool, open, schema, afterCommit }: PostgresHintsOptions<Tx>): Hints<Tx> {
  const runtime = runtimeWith();
  /** Who listens to each box through this very store, and need not be told by the server. */
  const nearby = new Map<string, Set<HintListener>>();
  return {
    sender(box, failed) {
      requireBox(box);
      const text = `NOTIFY "${channelOf(schema, box)}"`;
      const notify = coalesced(
        () => {
          for (const listener of nearby.get(box) ?? []) listener.hinted();
          return pool.query(text).then(() => {}, failed);
        },
        restMs,
        runtime,
      );
      return {
        send(tx) {
          if (!afterCommit(tx, notify)) notify();
        },
      };
    },

    async listen(box, listener, signal) {
      requireBox(box);
      const listeners = nearby.get(box) ?? new Set();
      nearby.set(box, listeners.add(listener));
      try {
        await listen({ ...listening, open, channel: channelOf(schema, box), listener, runtime }, signal);
      } finally {
        listeners.delete(listener);
      }
    },
  };
}

/** Postgres refuses a channel of more than 63 bytes; and what a consumer is called does not belong into a statement as it stands. */
function channelOf(schema: string, box: string): string {
  const name = `postbox:${schema}:${box}`;
  return /^[\w:/.-]{1,63}$/.test(name)
    ? name
    : `postbox:${createHash("sha256").update(name).digest("hex").slice(0, 40)}`;
}
