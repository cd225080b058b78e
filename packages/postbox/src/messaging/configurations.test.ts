import { telemetryLog } from "@postbox/testkit";
import { describeOn, describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { memoryStoreHarness, type StoreHarness } from "@postbox/testkit/suites";
import pg from "pg";
import {
  createMessaging,
  createPublisher,
  defineEvent,
  inboxOf,
  messagingOptionsFromEnv,
  PermanentError,
} from "postbox";
import { memoryBroker } from "postbox/memory";
import { pgTransactions } from "postbox/postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }), key: ({ n }) => `k${n}` });
const Invoiced = defineEvent({ type: "shop.Invoiced", schema: z.object({ n: z.number() }) });

const none = { count: 0 };

/** No test here waits for a lease to expire. */
const relayOptions = { pollIntervalMs: 20, leaseMs: 3_000, publishTimeoutMs: 900 };
const inboxOptions = { pollIntervalMs: 20, leaseMs: 3_000 };

/** A service configured by its environment, and the log of its telemetry. */
function service<Tx>(harness: StoreHarness<Tx>, env: Record<string, string>) {
  const broker = memoryBroker();
  broker.bind("billing", [Placed]);
  broker.bind("mail", [Invoiced]);
  const log = telemetryLog();
  const { store } = harness;
  const messaging = createMessaging({
    service: "shop",
    ...messagingOptionsFromEnv(env),
    store,
    sender: broker.sender(),
    receiver: broker.receiver(),
    telemetry: log.telemetry,
    relayOptions,
    inboxOptions,
  });
  /** Publishes directly with a given id. A second call with the same id is a duplicate to the consumer. */
  const duplicate = (n: number, id: string) =>
    createPublisher(broker.sender(), { source: "/shop" }).publish(Placed, { n }, { id });
  return { broker, log, store, messaging, duplicate };
}

function scenarios<Tx>(create: () => Promise<StoreHarness<Tx>>): void {
  const switches = ["false", "true"].flatMap((outbox) =>
    ["false", "true", "durable"].map((inbox) => ({ outbox, inbox })),
  );

  it.each(switches)("outbox $outbox, inbox $inbox: publishes, and handles", async ({ outbox, inbox }) => {
    const harness = await create();
    const env = { POSTBOX_ENABLE_OUTBOX: outbox, POSTBOX_ENABLE_INBOX: inbox };
    const { broker, log, store, messaging, duplicate } = service(harness, env);
    messaging.consumer("billing").on(Placed, async (_, { tx, message }) => {
      await harness.effect(tx, `billed ${message.id}`);
    });
    expect(messaging.relay === undefined).toBe(outbox === "false");
    messaging.start();
    try {
      const placed = (n: number, id: string) =>
        store.transaction(async (tx) => {
          await harness.effect(tx, `placed ${id}`);
          await messaging.publisher.publish(Placed, { n }, { id });
          if (n === 0) throw new Error("rolled back");
        });
      await expect(placed(0, "never")).rejects.toThrow("rolled back");
      await placed(1, "one");
      await duplicate(1, "one");
      await duplicate(2, "last");
      const direct = outbox === "false" ? 1 : 0;
      if (inbox === "false") await log.until("delivery.handled", 3 + direct);
      else await Promise.all([log.until("delivery.handled", 2 + direct), log.until("delivery.skipped")]);
    } finally {
      await messaging.stop();
    }
    const effects = [...(await harness.effects())].sort();
    expect(effects).toEqual([
      "billed last",
      // Without an outbox, the message is sent although its transaction rolls back.
      ...(outbox === "false" ? ["billed never"] : []),
      "billed one",
      ...(inbox === "false" ? ["billed one"] : []),
      "placed one",
    ]);
    expect(log.of("delivery.skipped").map(({ id }) => id)).toEqual(inbox === "false" ? [] : ["one"]);
    expect(broker.depth("billing")).toBe(0);
  });

  it.each(switches)("outbox $outbox, inbox $inbox: publishes what handlers return, or says why not", async (given) => {
    const { outbox, inbox } = given;
    const harness = await create();
    const env = { POSTBOX_ENABLE_OUTBOX: outbox, POSTBOX_ENABLE_INBOX: inbox };
    const { broker, log, store, messaging, duplicate } = service(harness, env);
    messaging.consumer("billing").on(Placed, async ({ n }, { tx }) => {
      await harness.effect(tx, "billed");
      return [Invoiced.message({ n })];
    });
    const refuses = outbox === "false" && inbox !== "false";
    const mailed = new Promise<void>((resolve) => {
      messaging.consumer("mail").on(Invoiced, async (_, { message }) => {
        expect(message).toMatchObject({ source: "/shop", extensions: { causationid: "one", correlationid: "one" } });
        resolve();
      });
    });
    messaging.start();
    try {
      await duplicate(1, "one");
      if (refuses) {
        const { error } = await log.until("delivery.parked");
        expect(error).toMatchObject({ code: "outputs-unpublished" });
        expect(error.message).toContain("the inbox is on and the outbox is off");
        expect(error.message).toContain("turn the outbox on");
      } else {
        await mailed;
        await log.until("delivery.acked", 2);
      }
    } finally {
      await messaging.stop();
    }
    expect(await harness.effects()).toEqual(refuses ? [] : ["billed"]);
    expect(broker.parked("billing")).toEqual([]);
    if (inbox === "false") return;
    const { messages } = await store.admin.list({ box: inboxOf("billing"), status: "parked" });
    expect(messages.map(({ id }) => id)).toEqual(refuses ? ["one"] : []);
  });

  it.each(["true", "durable"])("inbox %s: what failed is listed, retried, and handled once", async (inbox) => {
    const harness = await create();
    const { log, store, messaging, duplicate } = service(harness, { POSTBOX_ENABLE_INBOX: inbox });
    let mended = false;
    messaging.consumer("billing").on(Placed, async (_, { tx }) => {
      await harness.effect(tx, "billed");
      if (!mended) throw new PermanentError("no such customer");
    });
    messaging.start();
    try {
      await duplicate(1, "one");
      await log.until("delivery.parked");
      const box = inboxOf("billing");
      const { messages } = await store.admin.list({ box, status: "parked" });
      expect(messages).toMatchObject([{ id: "one", lastError: expect.stringContaining("no such customer") }]);
      // The inbox remembers it, so it is neither handled nor parked again.
      await duplicate(1, "one");
      await log.until("delivery.skipped");

      mended = true;
      expect(await store.admin.retry({ box, ids: ["one"] }, { by: "ann" })).toEqual({ count: 1 });
      await log.until("delivery.handled");
      await duplicate(1, "one");
      await log.until("delivery.skipped", 2);
      expect(await store.admin.stats({ box })).toMatchObject({ pending: none, waiting: none, parked: none });
    } finally {
      await messaging.stop();
    }
    expect(await harness.effects()).toEqual(["billed"]);
    expect(log.of("delivery.parked")).toHaveLength(1);
  });
}

describeOn({ title: "memory" }, () => scenarios(memoryStoreHarness));

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 15 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  beforeAll(data.create);
  afterAll(data.drop);
  describe("with pg", () => scenarios(data.create));
});
