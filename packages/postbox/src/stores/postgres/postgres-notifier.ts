import { createHash } from "node:crypto";
import type { Pool } from "pg";
import { ConfigError } from "../../errors.js";
import { coalesced } from "../../internal/coalesced.js";
import { runtimeWith } from "../../internal/runtime.js";
import type { NotificationListener, Notifier } from "../../notifier.js";
import { checkOptions, text } from "../../options.js";
import { requireBox } from "../box-names.js";
import { listen } from "./listen.js";
import { defaultSchema, schemaRule } from "./names.js";
import { ownConnections } from "./own-connection.js";
import { poolRule } from "./pool-rule.js";

export interface PostgresNotifierOptions {
  /** A pool of `pg`. It stays yours: end it after everything that uses the notifier has stopped. */
  readonly pool: Pool;
  /**
   * Where relays listen, on a connection of their own: the server itself, when the pool's connections end at a pooler that hands each
   * transaction to another session. Defaults to where the pool connects.
   */
  readonly directUrl?: string;
  /** The schema of the store. Defaults to "postbox". */
  readonly schema?: string;
}

const rules = { pool: poolRule, directUrl: text, schema: schemaRule };

/** Keeps hundreds of appends in a second from being as many transactions of their own; a listener polls that often anyway. */
const restMs = 10;
const listening = { checkEveryMs: 5_000, limitMs: 10_000 };

/**
 * Notifies through NOTIFY and LISTEN: sent on any connection of the pool, heard on one of its own for each relay.
 *
 * In a transaction of its own, and never in the user's: NOTIFY takes a lock on the whole database until its transaction
 * has committed, so that those who notify commit one after the other. Alone, it writes nothing, and waits for no disk.
 */
export function postgresNotifier(options: PostgresNotifierOptions): Notifier {
  checkOptions("postgresNotifier", options, rules, ["pool"]);
  const { pool, directUrl, schema = defaultSchema } = options;
  const open = ownConnections(pool, directUrl);
  if (open === undefined) {
    throw new ConfigError(
      "option-invalid",
      "postgresNotifier: this pool has no connection of its own to listen on, as with PGlite; leave the notifier out: relays poll anyway",
      { path: "pool" },
    );
  }
  const runtime = runtimeWith();
  /** Those in this process need not wait for the server. */
  const nearby = new Map<string, Set<NotificationListener>>();
  const notifiers = new Map<string, () => Promise<void>>();
  const notifierOf = (box: string) => {
    requireBox(box);
    const statement = `NOTIFY "${channelOf(schema, box)}"`;
    const made = together(async () => {
      for (const listener of nearby.get(box) ?? []) listener.notified();
      await pool.query(statement);
    });
    notifiers.set(box, made);
    return made;
  };

  /** One call of `task` for any number within the rest; each caller hears how the one that covers it went. */
  function together(task: () => Promise<void>): () => Promise<void> {
    let next: ReturnType<typeof deferred> | undefined;
    const run = coalesced(
      () => {
        const covered = next;
        next = undefined;
        return task().then(covered?.resolve, covered?.reject);
      },
      restMs,
      runtime,
    );
    return () => {
      next ??= deferred();
      const { promise } = next;
      run();
      return promise;
    };
  }

  return {
    name: "postgres",
    notify: (box) => (notifiers.get(box) ?? notifierOf(box))(),
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

function deferred() {
  let [resolve, reject]: [() => void, (error: unknown) => void] = [() => {}, () => {}];
  const promise = new Promise<void>((resolved, rejected) => {
    [resolve, reject] = [resolved, rejected];
  });
  return { promise, resolve, reject };
}

/** Postgres refuses a channel of more than 63 bytes; and what a consumer is called does not belong into a statement as it stands. */
function channelOf(schema: string, box: string): string {
  const name = `postbox:${schema}:${box}`;
  return /^[\w:/.-]{1,63}$/.test(name)
    ? name
    : `postbox:${createHash("sha256").update(name).digest("hex").slice(0, 40)}`;
}
