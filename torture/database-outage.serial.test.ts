import { setTimeout as sleep } from "node:timers/promises";
import { gate, recordingSender, telemetryLog, testMessage } from "@postbox/testkit";
import { type DisposableServer, disposable, type PostgresTestData, postgresTestData } from "@postbox/testkit/servers";
import type { StoreHarness } from "@postbox/testkit/suites";
import pg, { type ClientBase } from "pg";
import {
  constant,
  createRelay,
  createRouter,
  defineEvent,
  inbox,
  inboxOf,
  type RelayOptions,
  type Sender,
  transaction,
} from "postbox";
import { memoryBroker } from "postbox/memory";
import { pgTransactions } from "postbox/postgres";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { isPgbouncerInstalled } from "../packages/testkit/src/servers/recipes/pgbouncer.js";
import { databaseOutages, killed, type Outage, poolerOutages } from "./outages.js";

let server: DisposableServer;
let data: PostgresTestData<ClientBase>;
let harness: StoreHarness<ClientBase>;

beforeEach(async () => {
  const connect = () => new pg.Pool({ connectionString: server.url, max: 12 });
  data = postgresTestData({ connect, transactions: pgTransactions });
  harness = await data.create();
  // Not in `afterEach`, which comes before what tests themselves do when they are finished.
  onTestFinished(() => data.drop());
});

/** Outlasts every outage here: the relay never has to give up on what it has sent. */
const longLease = { leaseMs: 30_000, publishTimeoutMs: 9_000, pollIntervalMs: 20, backoff: constant(20) };
const shortLease = { leaseMs: 1_500, publishTimeoutMs: 400, pollIntervalMs: 20, backoff: constant(20) };

const keys = Array.from({ length: 10 }, (_, key) => `k${key}`);
const idsOf = (key: string, count: number) => Array.from({ length: count }, (_, n) => `${key}-${n}`);

/** Each id once, where it came first. */
const firsts = (ids: readonly string[]) => [...new Set(ids)];

describe("a PostgreSQL that goes away", () => {
  beforeAll(async () => {
    server = await disposable("postgres");
  });
  afterAll(() => server?.stop());
  facts(databaseOutages);
});

describe.skipIf(!isPgbouncerInstalled())("a PgBouncer that goes away", () => {
  let postgres: DisposableServer;
  beforeAll(async () => {
    postgres = await disposable("postgres");
    server = await disposable("pgbouncer", postgres.url);
  });
  afterAll(async () => {
    await server?.stop();
    await postgres?.stop();
  });
  facts(poolerOutages);
});

function facts(outages: readonly Outage[]): void {
  describe.each(outages)("$title", ({ begin, end }) => {
    it("a relay settles afterwards what it had sent, sends the rest, and nothing twice", async () => {
      const { sender, log, goOn } = await relayInTheMiddle(longLease);
      await begin(server);
      goOn.open();
      await log.until("relay.failed");
      await end(server);
      await sender.until(100);
      await expect.poll(async () => (await harness.contents("outbox")).pending).toEqual([]);

      expect(sender.ids()).toHaveLength(100);
      for (const key of keys) expect(sender.ids().filter((id) => id.startsWith(`${key}-`))).toEqual(idsOf(key, 10));
    });

    it("what COMMIT has answered is there, and what failed is there as a whole or not at all", async () => {
      const producers = startProducers(4);
      await producers.untilAnswered(50);
      await begin(server);
      await expect.poll(() => producers.failed.size).toBeGreaterThan(0);
      await end(server);
      await producers.untilAnswered(50);
      await producers.stop();

      const written = [...(await harness.effects())].sort();
      expect([...(await harness.contents("outbox")).pending].sort()).toEqual(written);
      expect(written).toEqual(firsts(written));
      expect(written).toEqual(expect.arrayContaining([...producers.answered]));
      expect(written.filter((id) => !producers.answered.has(id) && !producers.failed.has(id))).toEqual([]);
    });

    it("a consumer has every effect once, and parks nothing", async () => {
      const broker = memoryBroker();
      const [inTheMiddle, goOn] = [gate(), gate()];
      const log = telemetryLog();
      let handled = 0;
      const router = createRouter("billing", { ...patient, telemetry: log.telemetry })
        .use(transaction(harness.store))
        .use(inbox(harness.store))
        .on(Happened, async ({ id }, { tx }) => {
          await harness.effect(tx, id);
          if (++handled !== 20) return;
          inTheMiddle.open();
          await goOn.opened;
        });
      router.start(broker.receiver());
      onTestFinished(() => router.stop());
      const ids = keys.flatMap((key) => idsOf(key, 6));
      const twice = [...ids, ...ids].map((id) => testMessage(id));
      await broker.sender().send(twice, () => {}, new AbortController().signal);

      await inTheMiddle.opened;
      await begin(server);
      goOn.open();
      await log.until("router.failed", 3);
      await end(server);

      const effects = async () => [...(await harness.effects())].sort();
      await expect.poll(effects).toEqual(ids.sort());
      await expect.poll(() => broker.depth("billing")).toBe(0);
      expect(broker.parked("billing")).toEqual([]);
      const left = async () => (await harness.contents(inboxOf("billing"))).wait;
      await expect.poll(left).toEqual([]);
      expect(await effects()).toEqual(ids);
      expect((await harness.contents(inboxOf("billing"))).parked).toEqual([]);
    });
  });

  it("a relay whose lease ended during the outage sends again no more than what it could not settle", async () => {
    const { sender, log, goOn, before } = await relayInTheMiddle(shortLease);
    await killed.begin(server);
    goOn.open();
    await log.until("relay.lost");
    const unsettled = sender.ids().filter((id) => !before.has(id));
    await killed.end(server);
    await expect.poll(async () => (await harness.contents("outbox")).pending).toEqual([]);

    const ids = sender.ids();
    expect(unsettled.length).toBeLessThanOrEqual(30);
    expect(ids.filter((id, index) => ids.indexOf(id) < index && !unsettled.includes(id))).toEqual([]);
    for (const key of keys) expect(firsts(ids).filter((id) => id.startsWith(`${key}-`))).toEqual(idsOf(key, 10));
  });

  it("through one outage after the other, two relays send once what was committed, and nothing else", async () => {
    const sender = recordingSender();
    const [first, second] = [startRelay(sender, longLease), startRelay(sender, longLease)];
    const producers = startProducers(4);
    for (const { begin, end } of [...outages, ...outages]) {
      await producers.untilAnswered(50);
      const [failures, seen] = [producers.failed.size, sender.messages.length];
      await begin(server);
      await expect.poll(() => producers.failed.size).toBeGreaterThan(failures);
      await end(server);
      await expect.poll(() => sender.messages.length).toBeGreaterThan(seen);
    }
    await producers.stop();
    await expect.poll(async () => (await harness.contents("outbox")).pending).toEqual([]);
    await Promise.all([first.relay.stop(), second.relay.stop()]);

    expect(sender.ids().sort()).toEqual([...(await harness.effects())].sort());
    for (const producer of ["p0", "p1", "p2", "p3"]) {
      const sent = sender.messages.filter(({ key }) => key === producer).map(({ id }) => Number(id.split("-")[1]));
      expect(sent).toEqual([...sent].sort((a, b) => a - b));
    }
  }, 60_000);
}

/** An outage fails what is handled meanwhile again and again, and each time counts as an attempt. */
const patient = { maxAttempts: 1_000, backoff: constant(20), concurrency: 4 };

const Happened = defineEvent({ type: "testkit.facts.v1.Happened", schema: z.object({ id: z.string() }) });

function startRelay(sender: Sender, options: RelayOptions) {
  const log = telemetryLog();
  const relay = createRelay(harness.another(), sender, { ...options, telemetry: log.telemetry });
  relay.start();
  onTestFinished(() => relay.stop());
  return { relay, log };
}

/**
 * A relay that has sent and settled fifty of a hundred messages, ten of each key. The next ten are on their way until
 * `goOn` opens.
 */
async function relayInTheMiddle(options: RelayOptions) {
  const [onItsWay, goOn] = [gate(), gate()];
  const sender = recordingSender({
    async before() {
      if (sender.messages.length < 50) return;
      onItsWay.open();
      await goOn.opened;
    },
  });
  const messages = keys.flatMap((key) => idsOf(key, 10).map((id) => testMessage(id, { key })));
  await harness.store.transaction((tx) => harness.store.append(tx, "outbox", messages));
  const { log } = startRelay(sender, { ...options, batchSize: 10, maxInFlight: 10 });
  await onItsWay.opened;
  const settled = () => log.of("relay.settled").reduce((sum, { sent }) => sum + sent, 0);
  await expect.poll(settled).toBe(50);
  return { sender, log, goOn, before: new Set(sender.ids()) };
}

/** Each writes a row of its own and a message with the same name, again and again, and notes what it was told. */
function startProducers(count: number) {
  const [answered, failed] = [new Set<string>(), new Set<string>()];
  let stopped = false;
  const { store } = harness;
  const produce = async (key: string) => {
    for (let n = 0; !stopped; n++) {
      const id = `${key}-${n}`;
      try {
        await store.transaction(async (tx) => {
          await harness.effect(tx, id);
          await store.append(tx, "outbox", [testMessage(id, { key })]);
        });
        answered.add(id);
      } catch {
        failed.add(id);
        // Leaves the machine to the server that has to come back.
        await sleep(5);
      }
    }
  };
  const running = Promise.all(Array.from({ length: count }, (_, n) => produce(`p${n}`)));
  const stop = async () => {
    stopped = true;
    await running;
  };
  onTestFinished(stop);
  return {
    answered,
    failed,
    stop,
    /** Resolves when this many more have been committed. */
    async untilAnswered(more: number) {
      const wanted = answered.size + more;
      await expect.poll(() => answered.size).toBeGreaterThanOrEqual(wanted);
    },
  };
}
