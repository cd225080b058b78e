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

/** Options of `postgresNotifier`. */
export interface PostgresNotifierOptions {
  /** A `pg` pool. You own it: end it after everything that uses the notifier has stopped. */
  readonly pool: Pool;
  /**
   * Where each relay opens its listening connection. Set it to the server itself if the pool connects to a pooler in
   * transaction mode. Defaults to the pool's server.
   */
  readonly directUrl?: string;
  /** The schema of the store. Defaults to "postbox". */
  readonly schema?: string;
}

const rules = { pool: poolRule, directUrl: text, schema: schemaRule };

/**
 * Notifications within this time become one, so that hundreds of appends per second cause few transactions. That costs
 * no time: a relay that finds messages polls again soon anyway.
 */
const restMs = 10;
const listening = { checkEveryMs: 5_000, limitMs: 10_000 };

/**
 * Notifies through NOTIFY and LISTEN. It sends on any connection of the pool, and each relay listens on its own
 * connection.
 *
 * NOTIFY runs in its own transaction, never in the user's, because it locks the whole database until its transaction
 * commits: all transactions that notify would commit one after another. On its own, it writes nothing and waits for no
 * disk.
 *
 * @example
 * ```ts
 * const notifier = postgresNotifier({ pool });
 * const relay = createRelay(store, sender, { notifier });
 * ```
 */
export function postgresNotifier(options: PostgresNotifierOptions): Notifier {
  checkOptions("postgresNotifier", options, rules, ["pool"]);
  const { pool, directUrl, schema = defaultSchema } = options;
  const open = ownConnections(pool, directUrl);
  if (open === undefined) {
    throw new ConfigError(
      "option-invalid",
      "postgresNotifier: this pool cannot open a separate connection to listen on, as with PGlite; " +
        "leave the notifier out: relays poll anyway",
      { path: "pool" },
    );
  }
  const runtime = runtimeWith();
  /** Listeners in this process are notified without the server. */
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

  /**
   * Combines calls within `restMs` into one call of `task`. Each caller gets the outcome of the call that covers it.
   */
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

/** PostgreSQL limits channel names to 63 bytes, and a consumer's name must not go into a statement unescaped. */
function channelOf(schema: string, box: string): string {
  const name = `postbox:${schema}:${box}`;
  return /^[\w:/.-]{1,63}$/.test(name)
    ? name
    : `postbox:${createHash("sha256").update(name).digest("hex").slice(0, 40)}`;
}
