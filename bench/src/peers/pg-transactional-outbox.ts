import { randomOrder } from "../outbox/placed.js";
import { within } from "../time-limit.js";
import type { PeerSetup } from "./installed-peers.js";
import type { Peer } from "./peer.js";

interface PgTransactionalOutbox {
  readonly DatabaseSetup: Readonly<Record<string, (config: object) => string>>;
  getDisabledLogger(): unknown;
  initializePollingMessageListener(
    config: object,
    handler: { handle(): Promise<void> },
    logger: unknown,
    strategies?: object,
  ): [shutdown: () => Promise<void>];
}

const batch = 100;
const limitMs = 60_000;
const table = { outboxOrInbox: "outbox", database: "", schema: "trx", table: "outbox", listenerRole: "" };
const nextMessages = "next_outbox_messages";

/** Its polling listener. The listener for logical replication needs a server with `wal_level = logical`. */
export async function pgTransactionalOutbox({ module, version, database, ending }: PeerSetup): Promise<Peer> {
  const { DatabaseSetup, getDisabledLogger, initializePollingMessageListener } = module as PgTransactionalOutbox;
  const pool = database.pool(2);
  const setup = { ...table, nextMessagesName: nextMessages };
  for (const step of ["dropAndCreateTable", "createPollingFunction", "setupPollingIndexes"] as const) {
    await pool.query(DatabaseSetup[step]?.(setup) as string);
  }
  const insert = (from: string) => `
    INSERT INTO trx.outbox (id, aggregate_type, aggregate_id, message_type, segment, concurrency, payload)
    SELECT gen_random_uuid(), 'order', 'order', 'placed', NULL, 'parallel', $1 ${from}`;

  /** Listens until the returned function is called, which also happens at the end of the run. */
  const listen = (handle: () => Promise<void>): (() => Promise<void>) => {
    const config = {
      outboxOrInbox: "outbox",
      dbListenerConfig: { connectionString: database.url, max: 20 },
      settings: {
        dbSchema: "trx",
        dbTable: "outbox",
        nextMessagesFunctionSchema: "trx",
        nextMessagesFunctionName: nextMessages,
        nextMessagesBatchSize: batch,
        nextMessagesPollingIntervalInMs: 5,
        enableMaxAttemptsProtection: false,
        enablePoisonousMessageProtection: false,
        messageCleanupIntervalInMs: 0,
      },
    };
    // Its default strategy starts with batches of one, to isolate poison messages. There are none here.
    const strategies = { batchSizeStrategy: async () => batch };
    const [shutdown] = initializePollingMessageListener(config, { handle }, getDisabledLogger(), strategies);
    return ending.add(shutdown);
  };

  return {
    name: "pg-transactional-outbox",
    version,
    settings: "polling every 5 ms, batches of 100 in parallel",
    drainRows: 2_000,
    latencySamples: 50,
    async fill(rows) {
      await pool.query("TRUNCATE trx.outbox");
      await pool.query(insert("FROM generate_series(1, $2::integer)"), [JSON.stringify(randomOrder()), rows]);
      await pool.query("ANALYZE trx.outbox");
    },
    async drain(rows) {
      let handled = 0;
      let finish = () => {};
      const finished = new Promise<void>((resolve) => {
        finish = resolve;
      });
      const started = performance.now();
      const shutdown = listen(async () => {
        if (++handled === rows) finish();
      });
      try {
        await within(limitMs, () => `pg-transactional-outbox handled ${handled} of ${rows}`, finished);
        return (performance.now() - started) / 1000;
      } finally {
        await shutdown();
      }
    },
    async open(called) {
      await pool.query("TRUNCATE trx.outbox");
      const shutdown = listen(async () => called());
      return {
        send: async () => void (await pool.query(insert(""), [JSON.stringify(randomOrder())])),
        stop: shutdown,
      };
    },
  };
}
