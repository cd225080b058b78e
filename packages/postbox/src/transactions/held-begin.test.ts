import { testMessage } from "@postbox/testkit";
import { cuttable, describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { remember } from "@postbox/testkit/suites";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { postgresStore } from "../stores/postgres/postgres-store.js";
import { pgTransactions } from "./pg.js";

/* BEGIN that is sent together with the first statement of its transaction. */

describeOnEach("postgres", ({ url }) => {
  const data = postgresTestData({
    connect: () => new pg.Pool({ connectionString: url, max: 4 }),
    transactions: pgTransactions,
  });
  beforeAll(async () => void (await data.create()));
  afterAll(data.drop);

  const startsWithStatement = true;

  /** A pool with one client that is warmed up, and a count of the server's ReadyForQuery messages since then. */
  async function warmStore(pool: pg.Pool) {
    const store = postgresStore({ pool, schema: data.schema });
    await store.transaction((tx) => remember(store, tx, "warm", testMessage("m0")));
    let answers = 0;
    const client = await pool.connect();
    (client as unknown as { connection: NodeJS.EventEmitter }).connection.on("readyForQuery", () => answers++);
    client.release();
    return { store, client, answers: () => answers };
  }

  async function withPool(work: (pool: pg.Pool) => Promise<void>, connectionString = url) {
    const pool = new pg.Pool({ connectionString, max: 1 });
    pool.on("error", () => {});
    try {
      await work(pool);
    } finally {
      await pool.end();
    }
  }

  it("saves a round trip, and only where the work starts with a statement", () =>
    withPool(async (pool) => {
      const { store, answers } = await warmStore(pool);
      const handle = (id: string) =>
        store.transaction((tx) => remember(store, tx, "fused", testMessage(id)), { startsWithStatement });
      expect([await handle("m1"), await handle("m1")]).toEqual(["new", "duplicate"]);
      expect(answers()).toBe(4);
      await store.transaction((tx) => remember(store, tx, "fused", testMessage("m2")));
      expect(answers()).toBe(7);
    }));

  it("sends a statement without values as well", () =>
    withPool(async (pool) => {
      const { store, answers } = await warmStore(pool);
      const { executor } = pgTransactions(pool);
      const work = (tx: pg.ClientBase) => executor(tx)("SELECT 'one' AS found", []);
      const { rows } = await store.transaction(work, { startsWithStatement });
      expect([rows, answers()]).toEqual([[{ found: "one" }], 2]);
    }));

  it("begins with the isolation that was asked for", () =>
    withPool(async (pool) => {
      const { store } = await warmStore(pool);
      const isolation = await store.transaction(
        async (tx) => {
          await remember(store, tx, "isolated", testMessage("m1"));
          return (await tx.query("SHOW transaction_isolation")).rows[0].transaction_isolation;
        },
        { startsWithStatement, isolation: "serializable" },
      );
      expect(isolation).toBe("serializable");
    }));

  it("leaves no transaction open when its work throws before, in or after its statement, or sends none", () =>
    withPool(async (pool) => {
      const { store, client } = await warmStore(pool);
      const { executor } = pgTransactions(pool);
      const failure = new Error("no");
      const works: ((tx: pg.ClientBase) => Promise<unknown>)[] = [
        () => {
          throw failure;
        },
        () => Promise.reject(failure),
        (tx) => executor(tx)("SELECT 1 / $1::integer", [0]),
        (tx) => executor(tx)("SELECT $1", [{ toPostgres: () => bad() }]),
        (tx) => remember(store, tx, "thrower", testMessage("m1")).then(() => Promise.reject(failure)),
        async () => {},
        (tx) => tx.query("SELECT 1"),
      ];
      const outcomes: string[] = [];
      for (const work of works) {
        const outcome = store.transaction(work, { startsWithStatement });
        outcomes.push(
          await outcome.then(
            () => "committed",
            ({ message }: Error) => message,
          ),
        );
        expect(client.getTransactionStatus()).toBe("I");
        expect(pool).toMatchObject({ totalCount: 1, idleCount: 1 });
      }
      expect(outcomes).toEqual(["no", "no", "division by zero", "bad value", "no", "committed", "committed"]);
      // The id was rolled back, so it is not remembered.
      expect(await store.transaction((tx) => remember(store, tx, "thrower", testMessage("m1")))).toBe("new");
    }));

  it("notices work that ends its own transaction, or swallows an error", () =>
    withPool(async (pool) => {
      const { store } = await warmStore(pool);
      const first = (tx: pg.ClientBase) => remember(store, tx, "ender", testMessage("m1"));
      const ended = store.transaction((tx) => first(tx).then(() => tx.query("COMMIT")), { startsWithStatement });
      await expect(ended).rejects.toMatchObject({ code: "transaction-ended" });
      const { executor } = pgTransactions(pool);
      const swallowed = store.transaction((tx) => executor(tx)("SELECT 1 / $1::integer", [0]).catch(() => {}), {
        startsWithStatement,
      });
      await expect(swallowed).rejects.toMatchObject({ code: "commit-rolled-back" });
    }));

  it.each(Object.entries(wrappers))("works with a client whose query is wrapped by what %s", async (title, wrap) => {
    const pool = wrappedPool(url, wrap);
    const store = postgresStore({ pool, schema: data.schema });
    const consumer = title.replaceAll(" ", "-");
    const handle = (id: string) =>
      store
        .transaction((tx) => remember(store, tx, consumer, testMessage(id)), { startsWithStatement })
        .then(
          (remembered) => remembered,
          ({ message }: Error) => message,
        );
    const seen: string[] = [];
    for (const id of ["m1", "m2", "m3", "m4"]) seen.push(await handle(id));
    expect(new Set(seen)).toEqual(new Set(title.includes("each second") ? ["new", "not now"] : ["new"]));
    expect(pool).toMatchObject({ totalCount: 1, idleCount: 1, waitingCount: 0 });
    const { rows } = await pool.query("SELECT pg_current_xact_id_if_assigned() IS NULL AS clean");
    expect(rows).toEqual([{ clean: true }]);
    await pool.end();
  });

  it("rejects when the connection is lost under it, and goes on with another one", async () => {
    const way = await cuttable(url);
    try {
      await withPool(async (pool) => {
        const { store } = await warmStore(pool);
        const handle = () =>
          store.transaction(
            (tx) => {
              const remembered = remember(store, tx, "lost", testMessage("m1"));
              way.cut();
              return remembered;
            },
            { startsWithStatement },
          );
        const error = await handle().catch((thrown) => thrown);
        expect(store.isUnavailable(error)).toBe(true);
        way.mend();
        expect(await store.transaction((tx) => remember(store, tx, "lost", testMessage("m1")))).toBe("new");
      }, way.url);
    } finally {
      way.close();
    }
  });
});

type Query = (this: pg.Client, ...given: unknown[]) => unknown;

/** What tracers and other wrappers of `client.query` do with their argument. */
const wrappers: Readonly<Record<string, (query: Query) => Query>> = {
  "answers with a promise": (query) =>
    async function (...given) {
      await null;
      return query.apply(this, given);
    },
  "reads what the promise has": (query) =>
    async function (...given) {
      const answer = (await query.apply(this, given)) as { readonly rows?: readonly unknown[] } | undefined;
      // Undefined if `query` was given a callback.
      if (answer !== undefined && answer.rows === undefined) throw new Error("this is no result");
      return answer;
    },
  "locks the text": (query) =>
    function (...given) {
      const [config] = given as [{ text?: string }];
      const text = config?.text;
      if (typeof text === "string") Object.defineProperty(config, "text", { get: () => text });
      return query.apply(this, given);
    },
  "copies what it is given": (query) =>
    function (...given) {
      const [config, ...rest] = given;
      return query.call(this, typeof config === "string" ? config : { ...(config as object) }, ...rest);
    },
  "rejects each second BEGIN": (query) => {
    let begins = 0;
    return function (...given) {
      const [config] = given as [string | { text?: string }];
      const text = typeof config === "string" ? config : config?.text;
      if (text === "BEGIN" && ++begins % 2 === 0) return Promise.reject(new Error("not now"));
      return query.apply(this, given);
    };
  },
  "throws at each second BEGIN": (query) => {
    let begins = 0;
    return function (...given) {
      const [config] = given as [string | { text?: string }];
      const text = typeof config === "string" ? config : config?.text;
      if (text === "BEGIN" && ++begins % 2 === 0) throw new Error("not now");
      return query.apply(this, given);
    };
  },
};

/** A pool with one client whose `query` is wrapped. Its classes are new, as in a copy of `pg` that was never used. */
function wrappedPool(url: string, wrap: (query: Query) => Query): pg.Pool {
  const { Query: PgQuery } = pg as unknown as { readonly Query: new (...given: unknown[]) => object };
  class Client extends pg.Client {
    static readonly Query = class extends PgQuery {};
  }
  (Client.prototype as { query: Query }).query = wrap(pg.Client.prototype.query as Query);
  return new pg.Pool({ connectionString: url, max: 1, Client } as pg.PoolConfig);
}

function bad(): never {
  throw new Error("bad value");
}
