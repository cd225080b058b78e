import { telemetryLog, testMessages } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import {
  constant,
  createPublisher,
  createRelay,
  createRouter,
  defineEvent,
  durableInbox,
  inboxOf,
  logTo,
  PermanentError,
  type Sender,
  type Store,
  transaction,
} from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";
import { pgTransactions } from "postbox/postgres";
import { afterAll, expect, it } from "vitest";
import { z } from "zod";

const canary = "canary-4f81";
const leaky = `connect ECONNREFUSED amqp://guest:${canary}@host; password=${canary}, Authorization: Bearer ${canary}`;

/**
 * Fails the first message with a retry, and the second one permanently, with errors that tell everything a driver may
 * tell.
 */
const leakySender: Sender = {
  name: "leaky",
  keepsOrder: true,
  async send(messages, settled) {
    for (const [index, { id }] of messages.entries()) {
      settled(index, { status: id === "m-0" ? "failed" : "rejected", error: new Error(leaky) });
    }
  },
};

/** Lets a relay store the sender's errors; returns every line of its log. */
async function relayLeaks(store: Store): Promise<string> {
  const lines: string[] = [];
  const write = (line: string) => void lines.push(line);
  const [log, toLines] = [telemetryLog(), logTo({ debug: write, info: write, warn: write, error: write })];
  await store.transaction((tx) => store.append(tx, "outbox", testMessages("m", 2)));
  const relay = createRelay(store, leakySender, {
    backoff: constant(60_000),
    telemetry(event) {
      toLines(event);
      log.telemetry(event);
    },
  });
  relay.start();
  await Promise.all([log.until("message.failed"), log.until("message.parked")]);
  await relay.stop();
  return lines.join("\n");
}

const clean = "connect ECONNREFUSED amqp://***@host; password=***, Authorization: ***";

it("stores and logs no password of a broker", async () => {
  const store = memoryStore();
  const lines = await relayLeaks(store);
  expect(lines).toContain(clean);
  expect(lines).not.toContain(canary);
  expect(store.contents("outbox").parked.map(({ error }) => error)).toEqual([clean]);
});

it("stores the beginning of a very long text", async () => {
  const store = memoryStore();
  const broker = memoryBroker();
  const log = telemetryLog();
  const endless = "x".repeat(1_000_000);
  const kept = `${"x".repeat(2_047)}…`;
  const sender: Sender = {
    name: "endless",
    keepsOrder: true,
    send: async (messages, settled) =>
      messages.forEach((_, index) => {
        settled(index, { status: "rejected", error: new Error(endless) });
      }),
  };
  await store.transaction((tx) => store.append(tx, "outbox", testMessages("m", 1)));
  const relay = createRelay(store, sender, { telemetry: log.telemetry });
  relay.start();
  await log.until("message.parked");
  await relay.stop();
  expect(store.contents("outbox").parked.map(({ error }) => error)).toEqual([kept]);

  const Placed = defineEvent({ type: "shop.Placed", schema: z.object({}) });
  const router = createRouter("b", { telemetry: log.telemetry })
    .use(transaction(store))
    .use(durableInbox(store, { pollIntervalMs: 10 }))
    .on(Placed, () => {
      throw new PermanentError(endless);
    });
  router.start(broker.receiver());
  await createPublisher(broker.sender(), { source: "/test" }).publish(Placed, {});
  await log.until("message.parked", 2);
  await router.stop();
  const [parked] = store.contents(inboxOf("b")).parked;
  expect(parked?.error).toMatch(/^\[permanent\] x+…$/);
  expect(parked?.error).toHaveLength(2_048);
});

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  afterAll(data.drop);

  it("stores and logs no password of a broker", async () => {
    const { store } = await data.create();
    expect(await relayLeaks(store)).not.toContain(canary);
    const { rows } = await data.pool.query(
      `SELECT last_error AS text FROM ${data.schema}.outbox_wait UNION ALL SELECT reason FROM ${data.schema}.outbox_parked`,
    );
    expect(rows).toEqual([{ text: clean }, { text: clean }]);
  });
});
