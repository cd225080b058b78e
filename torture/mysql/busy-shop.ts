import type { RowDataPacket } from "mysql2";
import { createPool, type Pool } from "mysql2/promise";
import { constant, createOutbox, createRelay, defineEvent, type Message, type Relay, type Sender } from "postbox";
import { type Mysql2Transaction, type MysqlStore, mysqlStore } from "postbox/mysql";
import { z } from "zod";

const Placed = defineEvent({
  type: "shop.v1.Placed",
  schema: z.object({ id: z.string(), customer: z.string() }),
  key: ({ customer }) => customer,
});

/** An append whose transaction has committed: no other one began before it or ended after it within these times. */
export interface Committed {
  readonly id: string;
  readonly key: string;
  readonly begunAt: number;
  readonly committedAt: number;
}

export interface BusyShopOptions {
  /** The server, without a database. */
  readonly url: string;
  readonly database: string;
  readonly writers: number;
  readonly relays: number;
}

/** Writers whose transactions overlap, and relays that send what they commit, in one process with several pools. */
export class BusyShop {
  readonly committed: Committed[] = [];
  /** Errors of transactions, except those that were rolled back on purpose. */
  readonly errors: unknown[] = [];
  readonly sent: Message[] = [];
  readonly #options: BusyShopOptions;
  readonly #pools: Pool[] = [];
  readonly #relays: Relay[] = [];
  readonly #store: MysqlStore<Mysql2Transaction>;

  constructor(options: BusyShopOptions) {
    this.#options = options;
    this.#store = mysqlStore({ pool: this.#pool(options.writers) });
  }

  #pool(connectionLimit: number): Pool {
    const { url, database } = this.#options;
    const pool = createPool({ uri: `${url}/${database}`, connectionLimit, enableKeepAlive: true });
    this.#pools.push(pool);
    return pool;
  }

  get #first(): Pool {
    return this.#pools[0] as Pool;
  }

  async open(): Promise<void> {
    const { url, database, relays } = this.#options;
    const admin = createPool({ uri: url, connectionLimit: 1 });
    await admin.query(`CREATE DATABASE \`${database}\``);
    await admin.end();
    await this.#store.migrate();
    await this.#first.query("CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY) ENGINE=InnoDB");
    const sender: Sender = {
      name: "recording",
      keepsOrder: true,
      send: async (batch, settled) => {
        for (const [index, message] of batch.entries()) {
          this.sent.push(message);
          settled(index, { status: "sent" });
        }
      },
    };
    for (let relay = 0; relay < relays; relay++) {
      const store = mysqlStore({ pool: this.#pool(4) });
      const options = { pollIntervalMs: 20, leaseMs: 3_000, publishTimeoutMs: 900, backoff: constant(50) };
      this.#relays.push(createRelay(store, sender, { ...options, telemetry: () => {} }));
    }
    await Promise.all(this.#relays.map((relay) => relay.start()));
  }

  /** Places orders for this long. Every seventh transaction rolls back, and each takes a random time. */
  async place(ms: number): Promise<void> {
    const until = performance.now() + ms;
    const outbox = createOutbox(this.#store, { source: "/orders", notifier: false, telemetry: () => {} });
    const write = async (writer: number) => {
      for (let n = 0; performance.now() < until; n++) {
        const id = `${writer}-${n}`;
        const customer = `c${(writer * 7 + n * 3) % 25}`;
        const fails = n % 7 === 6;
        const begunAt = performance.now();
        try {
          await this.#store.transaction(async (tx) => {
            await tx.query("INSERT INTO orders (id) VALUES (?)", [id]);
            if (n % 2 === 0) await pause();
            await outbox.in(tx).publish(Placed, { id, customer }, { id });
            if (n % 3 === 0) await pause();
            if (fails) throw refused;
          });
          this.committed.push({ id, key: customer, begunAt, committedAt: performance.now() });
        } catch (error) {
          if (error !== refused) this.errors.push(error);
        }
      }
    };
    await Promise.all(Array.from({ length: this.#options.writers }, (_, writer) => write(writer)));
  }

  /** The ids of the committed orders, which also has those whose COMMIT lost its answer. */
  async orders(): Promise<readonly string[]> {
    const [rows] = (await this.#first.query("SELECT id FROM orders")) as [RowDataPacket[], unknown];
    return rows.map(({ id }) => String(id));
  }

  async unsent(): Promise<number> {
    const [rows] = (await this.#first.query(
      "SELECT (SELECT COUNT(*) FROM postbox_pending) + (SELECT COUNT(*) FROM postbox_waiting) AS count",
    )) as [RowDataPacket[], unknown];
    return Number(rows[0]?.count);
  }

  async close(): Promise<void> {
    await Promise.all(this.#relays.map((relay) => relay.stop().catch(() => {})));
    await this.#first.query(`DROP DATABASE \`${this.#options.database}\``).catch(() => {});
    await Promise.all(this.#pools.map((each) => each.end().catch(() => {})));
  }
}

const refused = new Error("the card was refused");

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.random() * 8));
}

/** First sends of one key that came in another order than their appends, though these did not overlap. */
export function disordered(committed: readonly Committed[], sent: readonly Message[]): readonly string[] {
  const place = new Map<string, number>();
  for (const [index, { id }] of sent.entries()) if (!place.has(id)) place.set(id, index);
  const byKey = new Map<string, Committed[]>();
  for (const each of committed) byKey.set(each.key, [...(byKey.get(each.key) ?? []), each]);
  return [...byKey.values()].flatMap((each) => {
    const inOrder = [...each].sort((one, other) => one.begunAt - other.begunAt);
    // Of all that had committed before this one began, the one that was sent last.
    const byEnd = [...each].sort((one, other) => one.committedAt - other.committedAt);
    let [ended, latest] = [0, -1];
    return inOrder.flatMap(({ id, begunAt }) => {
      while (ended < byEnd.length && (byEnd[ended] as Committed).committedAt < begunAt) {
        latest = Math.max(latest, place.get((byEnd[ended++] as Committed).id) ?? Number.POSITIVE_INFINITY);
      }
      return (place.get(id) ?? -1) < latest ? [id] : [];
    });
  });
}
