import { describeOnEach, postgresTestData, telemetryLog, testMessages } from "@postbox/testkit";
import pg from "pg";
import { constant, createRelay, logTo, type Sender, type Store } from "postbox";
import { memoryStore } from "postbox/memory";
import { pgTransactions } from "postbox/postgres";
import { afterAll, expect, it } from "vitest";

const canary = "canary-4f81";
const leaky = `connect ECONNREFUSED amqp://guest:${canary}@host; password=${canary}, Authorization: Bearer ${canary}`;

/** Fails the first message for now, and the second for ever, with all that a driver may say. */
const leakySender: Sender = {
  name: "leaky",
  keepsOrder: true,
  async send(messages, settled) {
    for (const [index, { id }] of messages.entries()) {
      settled(index, { status: id === "m-0" ? "failed" : "rejected", error: new Error(leaky) });
    }
  },
};

/** Lets a relay store what the sender says; answers with every line of its log. */
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
