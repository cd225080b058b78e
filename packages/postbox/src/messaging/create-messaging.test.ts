import { gate, telemetryLog } from "@postbox/testkit";
import {
  type ConsumerOptions,
  constant,
  createMessaging,
  currentTransaction,
  defineEvent,
  inboxOf,
  type MessagingOptions,
  timeout,
} from "postbox";
import { memoryBroker, memoryDatabase, memoryStore } from "postbox/memory";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }) });
const Invoiced = defineEvent({ type: "shop.Invoiced", schema: z.object({ n: z.number() }) });

function world() {
  const broker = memoryBroker();
  broker.bind("orders", [Placed]);
  broker.bind("mail", [Invoiced]);
  const database = memoryDatabase();
  const store = memoryStore({ database });
  const log = telemetryLog();
  const shared = {
    service: "orders",
    store,
    sender: broker.sender(),
    receiver: broker.receiver(),
    telemetry: log.telemetry,
    relayOptions: { pollIntervalMs: 10 },
    inboxOptions: { pollIntervalMs: 10 },
    routerOptions: { backoff: constant(1) },
  };
  return { broker, database, store, log, shared };
}

describe("the publisher", () => {
  it("with the outbox on, writes into the transaction that surrounds it", async () => {
    const { store, shared } = world();
    const { publisher } = createMessaging({ ...shared, outbox: true });
    await store.transaction(async () => {
      await publisher.publish(Placed, { n: 1 }, { id: "a" });
      await publisher.publishAll([Placed.message({ n: 2 }, { id: "b" })]);
      await publisher.send({ type: "shop.Placed", id: "c" });
      expect((await store.admin.stats()).pending.count).toBe(0);
    });
    const { messages } = await store.admin.list();
    expect(messages.map(({ id, source }) => `${id} ${source}`).sort()).toEqual(["a /orders", "b /orders", "c /orders"]);
  });

  it("with the outbox on and no transaction, says what to do", async () => {
    const { store, shared } = world();
    const { publisher } = createMessaging({ ...shared, outbox: true });
    const attempts = [
      () => publisher.publish(Placed, { n: 1 }),
      () => publisher.publishAll([Placed.message({ n: 1 })]),
      () => publisher.send({ type: "shop.Placed" }),
    ];
    for (const attempt of attempts) {
      await expect(attempt()).rejects.toMatchObject({ code: "transaction-missing" });
      await expect(attempt()).rejects.toThrow(
        "no transaction of memory is open here to publish in; call it inside store.transaction(...) or in a handler " +
          "behind transaction(store), or publish into your own with .in(tx)",
      );
    }
    // Work that continues after its transaction is no longer in it.
    const { opened, open } = gate();
    let late: Promise<unknown> = Promise.resolve();
    await store.transaction(async () => {
      late = opened.then(() => publisher.publish(Placed, { n: 1 }));
    });
    open();
    await expect(late).rejects.toMatchObject({ code: "transaction-missing" });
  });

  it("takes a transaction that the store did not open", async () => {
    const { database, store, shared } = world();
    const messaging = createMessaging({ ...shared, outbox: true });
    await memoryStore({ database }).transaction(async (tx) => {
      expect(store.current()).toBeUndefined();
      await messaging.in(tx).publish(Placed, { n: 1 });
    });
    expect((await store.admin.stats()).pending.count).toBe(1);
  });

  it("with the outbox off, is one that goes straight to the broker", async () => {
    const { broker, store, shared } = world();
    const messaging = createMessaging(shared);
    const direct = await store.transaction(async (tx) => {
      await messaging.in(tx).publish(Placed, { n: 1 });
      expect(broker.depth("orders")).toBe(1);
      return messaging.in(tx);
    });
    expect(direct).toBe(messaging.publisher);
    expect(messaging.relay).toBeUndefined();
  });
});

describe("a consumer", () => {
  it("switches its own inbox", async () => {
    const { log, store, shared } = world();
    const effects: string[] = [];
    const messaging = createMessaging({ ...shared, inbox: true });
    messaging.consumer("remembers").on(Placed, (_, { tx }) => tx.defer(() => effects.push("remembers")));
    messaging.consumer("forgets", { inbox: false }).on(Placed, (_, { tx }) => tx.defer(() => effects.push("forgets")));
    messaging
      .consumer("stores", { inbox: "durable" })
      .on(Placed, (_, { tx }) => tx.defer(() => effects.push("stores")));
    messaging.start();
    for (let times = 0; times < 2; times++) await messaging.publisher.publish(Placed, { n: 1 }, { id: "a" });
    await log.until("delivery.handled", 4);
    await log.until("delivery.skipped", 2);
    await messaging.stop();
    expect(effects.sort()).toEqual(["forgets", "forgets", "remembers", "stores"]);
    await expect(store.admin.stats({ box: inboxOf("forgets") })).rejects.toThrow("no box");
  });

  it("has one inbox though the service has none", async () => {
    const { log, shared } = world();
    const handled: string[] = [];
    const messaging = createMessaging(shared);
    messaging.consumer("orders", { inbox: true }).on(Placed, (_, { message }) => void handled.push(message.id));
    messaging.start();
    for (const id of ["a", "a", "b"]) await messaging.publisher.publish(Placed, { n: 1 }, { id });
    await log.until("delivery.acked", 3);
    await messaging.stop();
    expect(handled.sort()).toEqual(["a", "b"]);
  });

  it("publishes with the publisher of the service, in its handler's transaction", async () => {
    const { broker, log, store, shared } = world();
    const messaging = createMessaging({ ...shared, outbox: true, inbox: true });
    messaging.consumer().on(Placed, async ({ n }, { tx, attempt }) => {
      expect(currentTransaction(store)).toBe(tx);
      await messaging.publisher.publish(Invoiced, { n });
      if (attempt === 1) throw new Error("rolls back");
    });
    messaging.start();
    await store.transaction(() => messaging.publisher.publish(Placed, { n: 1 }));
    let sent = 0;
    await log.until((event) => event.name === "message.sent" && event.box === "outbox" && ++sent === 2);
    await messaging.stop();
    expect(broker.depth("mail")).toBe(1);
  });

  it("has middleware outside of its transaction, and inside", async () => {
    const { log, shared } = world();
    const messaging = createMessaging({ ...shared, inbox: true, maxAttempts: 1 });
    const given = { onUnknownType: "ignore", outside: (router) => router.use(timeout(10)) } satisfies ConsumerOptions;
    messaging.consumer("orders", given).on(Placed, async (_, { signal }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    });
    messaging.start();
    await messaging.publisher.publish(Placed, { n: 1 });
    const { error } = await log.until("delivery.parked");
    await messaging.stop();
    expect(error).toMatchObject({ code: "attempts-spent", cause: { code: "handler-timeout" } });
  });

  it("is named by the group, or else by the service; another one by its own name, once", () => {
    const { shared } = world();
    const asked: string[] = [];
    const receiver = (name: string) => {
      asked.push(name);
      return shared.receiver;
    };
    const ungrouped = createMessaging({ ...shared, receiver });
    ungrouped.consumer();
    expect(() => ungrouped.consumer("orders")).toThrow(
      "[option-invalid] createMessaging: there is a consumer orders already; register more events with its .on(...)",
    );
    const grouped = createMessaging({ ...shared, receiver, group: "workers" });
    grouped.consumer();
    grouped.consumer("mail");
    expect(() => grouped.start()).toThrow("no-handler");
    expect(asked).toEqual(["workers", "mail"]);
  });

  it("takes the options of the service, and its own before them", async () => {
    const { broker, log, shared } = world();
    const attempts: Record<string, number> = { orders: 0, mail: 0 };
    const messaging = createMessaging({ ...shared, maxAttempts: 3 });
    const failing = (_: unknown, { consumer, attempt }: { consumer: string; attempt: number }) => {
      attempts[consumer] = attempt;
      throw new Error("always");
    };
    messaging.consumer("orders", { maxAttempts: undefined }).on(Placed, failing);
    messaging.consumer("mail", { maxAttempts: 2 }).on(Placed, failing);
    messaging.start();
    await messaging.publisher.publish(Placed, { n: 1 });
    await log.until("delivery.parked", 2);
    await messaging.stop();
    expect(attempts).toEqual({ orders: 3, mail: 2 });
    expect([broker.parked("orders").length, broker.parked("mail").length]).toEqual([1, 1]);
  });

  it("works without a store, where nothing needs one", async () => {
    const { broker, log, shared } = world();
    const messaging = createMessaging({ ...shared, store: undefined });
    messaging.consumer().on(Placed, ({ n }, context) => {
      expect(context).not.toHaveProperty("tx");
      return [Invoiced.message({ n })];
    });
    messaging.start();
    await messaging.publisher.publish(Placed, { n: 1 });
    await log.until("delivery.acked");
    await messaging.stop();
    expect(broker.depth("mail")).toBe(1);
  });
});

describe("running all of it", () => {
  it("by run(signal), until it is aborted, with nothing to run as well", async () => {
    const { log, store, shared } = world();
    const messaging = createMessaging({ ...shared, outbox: true });
    messaging.consumer().on(Placed, () => {});
    const controller = new AbortController();
    const running = messaging.run(controller.signal);
    await store.transaction(() => messaging.publisher.publish(Placed, { n: 1 }));
    await log.until("delivery.acked");
    controller.abort();
    await running;
    expect(log.of("relay.released")).toHaveLength(1);

    const idle = createMessaging({ ...shared, receiver: undefined });
    const stopping = new AbortController();
    let ended = false;
    const nothing = idle.run(stopping.signal).then(() => {
      ended = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(ended).toBe(false);
    stopping.abort();
    await nothing;
    idle.start();
    await idle.stop();
  });

  it("shows its outbox, such as for a schedule, where there is one", async () => {
    const { store, shared } = world();
    const messaging = createMessaging({ ...shared, store, outbox: true });
    await store.transaction((tx) => messaging.outbox.in(tx).publish(Placed, { n: 1 }));
    expect(store.contents("outbox").pending).toHaveLength(1);
    expect(createMessaging({ ...shared, outbox: false }).outbox).toBeUndefined();
  });

  it("ends a run without a signal when it is closed", async () => {
    const { log, store, shared } = world();
    const messaging = createMessaging({ ...shared, outbox: true });
    messaging.consumer().on(Placed, () => {});
    const running = messaging.run();
    await store.transaction(() => messaging.publisher.publish(Placed, { n: 1 }));
    await log.until("delivery.acked");
    await messaging.close();
    await running;
    expect(log.of("relay.released")).toHaveLength(1);
  });

  it("stops what was started by itself, too", async () => {
    const { log, store, shared } = world();
    const messaging = createMessaging({ ...shared, outbox: true });
    const consumer = messaging.consumer().on(Placed, () => {});
    await consumer.start(shared.receiver);
    await messaging.relay.start();
    await store.transaction(() => messaging.publisher.publish(Placed, { n: 1 }));
    await log.until("delivery.acked");
    await messaging.close();
    expect(log.of("relay.released")).toHaveLength(1);
    expect(await messaging.relay.start()).toBe(true);
    await messaging.close();
    expect(log.of("relay.released")).toHaveLength(2);
  });

  it.each(["run by messaging", "started by itself"])(
    "tells the health of the receiver of a consumer %s",
    async (how) => {
      const { log, shared } = world();
      const since = new Date();
      const receiver = { ...shared.receiver, health: () => ({ status: "down" as const, since }) };
      const messaging = createMessaging({ ...shared, receiver });
      const consumer = messaging.consumer().on(Placed, () => {});
      expect(await messaging.health()).toMatchObject({ healthy: true });
      if (how === "started by itself") await consumer.start(receiver);
      else void messaging.run();
      await messaging.publisher.publish(Placed, { n: 1 });
      await log.until("delivery.acked");
      expect((await messaging.health()).problems).toMatchObject([
        { code: "transport-down", end: "receiver", consumer: "orders", since },
      ]);
      await messaging.close();
    },
  );

  it("takes no consumer once it has run", async () => {
    const messaging = createMessaging(world().shared);
    messaging.start();
    expect(() => messaging.consumer("late")).toThrow(
      "[already-started] orders has run already; make its consumer late",
    );
    await messaging.stop();
  });

  it("starts once at a time, and again after a stop", async () => {
    const { log, shared } = world();
    const messaging = createMessaging({ ...shared, outbox: true });
    messaging.consumer().on(Placed, () => {});
    await messaging.stop();
    messaging.start();
    expect(() => messaging.start()).toThrow("already-started");
    await log.until("relay.owned");
    await messaging.stop();
    messaging.start();
    await log.until("relay.owned", 2);
    await messaging.stop();
  });

  it("needs a receiver for consumers", async () => {
    const { shared } = world();
    const messaging = createMessaging({ ...shared, receiver: undefined });
    messaging.consumer().on(Placed, () => {});
    const text = "[option-invalid] consumer orders has nothing to run on; give createMessaging 'receiver'";
    expect(() => messaging.start()).toThrow(text);
    await expect(messaging.run()).rejects.toThrow(text);
  });
});

describe("what is wrong with its options", () => {
  const { shared } = world();
  const { store: _store, ...storeless } = shared;
  type Given = Record<string, unknown>;
  const wrong: [what: string, given: Given, text: string][] = [
    ["an outbox without a store", { ...storeless, outbox: true }, "the outbox is on and has no store to be in; give"],
    ["an inbox without a store", { ...storeless, inbox: "durable" }, "the inbox is on and has no store to be in; give"],
    ["no service", { ...shared, service: undefined }, "option 'service' is missing; give a non-empty string"],
    ["no sender", { ...shared, sender: undefined }, "option 'sender' is missing; give a sender"],
    ["an unknown option", { ...shared, outBox: true }, "unknown option 'outBox'; did you mean 'outbox'?"],
    ["a store that is none", { ...shared, store: {} }, "option 'store' must be a store, such as postgresStore"],
    ["a receiver that is none", { ...shared, receiver: {} }, "option 'receiver' must be a receiver"],
    ["text for a flag", { ...shared, outbox: "true" }, "option 'outbox' must be true or false"],
    [
      "another inbox",
      { ...shared, inbox: "durabel" },
      `option 'inbox' must be true, false or "durable"; got "durabel"`,
    ],
    ["a relay's, while it is off", { ...shared, relayOptions: { order: "x" } }, "createRelay: option 'order' must be"],
    [
      "a poll interval, while it is off",
      { ...shared, relayOptions: {}, pollIntervalMs: 5000 },
      "below a third of leaseMs",
    ],
    ["a publisher's", { ...shared, publisherOptions: { maxMessageBytes: 0 } }, "option 'maxMessageBytes' must be"],
    [
      "an outbox's, while it is off",
      { ...shared, publisherOptions: { strictKeyOrder: 1 } },
      "createOutbox: option 'strictKeyOrder' must be",
    ],
    ["a notifier", { ...shared, notifier: true }, "option 'notifier' must be a Notifier, such as"],
    [
      "an inbox's, while it is off",
      { ...shared, inboxOptions: { detectMismatch: 1 } },
      "inbox: option 'detectMismatch' must be",
    ],
    [
      "a router's, before there is one",
      { ...shared, routerOptions: { ack: 1 } },
      "routerOptions: option 'ack' must be",
    ],
  ];
  it.each(wrong)("%s", (_, given, text) => {
    expect(() => createMessaging(given as unknown as MessagingOptions<undefined, false, false>)).toThrow(text);
  });

  it("nothing, of what came along from the environment", () => {
    const given = { ...shared, databaseUrl: "postgres://u:secret@h/d", brokerUrl: "memory:" };
    expect(() => createMessaging(given)).not.toThrow();
  });

  const wrongConsumers: [what: string, given: Given, text: string][] = [
    ["an unknown option", { inbx: true }, "[option-unknown] consumer b: unknown option 'inbx'; did you mean 'inbox'?"],
    [
      "an inbox without a store",
      { inbox: true },
      "[option-invalid] consumer b: the inbox is on and has no store to be in",
    ],
    ["another isolation", { isolation: "none" }, "[option-invalid] consumer b: option 'isolation' must be"],
    [
      "middleware that is no function",
      { outside: timeout(1) },
      "[option-invalid] consumer b: option 'outside' must be",
    ],
  ];
  it.each(wrongConsumers)("%s of a consumer", (_, given, text) => {
    expect(() => createMessaging(storeless).consumer("b", given)).toThrow(text);
  });

  it("an ack by hand, and forwarding without an end, as everywhere", () => {
    const options = { ...shared, outbox: true } as { store: typeof shared.store } & typeof shared;
    expect(() => createMessaging(options).consumer("b", { ack: "manual" as "on-success" })).toThrow(
      'transaction() cannot stand behind ack: "manual"',
    );
    expect(() =>
      createMessaging(options)
        .consumer("b", { ack: "forward" })
        .on(Placed, () => {}),
    ).toThrow('ack: "forward" needs a publisher');
  });
});
