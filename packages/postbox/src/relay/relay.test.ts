import { faultySender, gate, recordingSender, settlesWithin, telemetryLog, testMessage } from "@postbox/testkit";
import {
  constant,
  createRelay,
  exponential,
  outboxReceiver,
  PostboxError,
  type RelayOptions,
  type Sender,
  type Store,
} from "postbox";
import type { PurgeOptions } from "postbox/admin";
import { type MemoryStore, memoryBroker, memoryStore } from "postbox/memory";
import type { Box, Row } from "postbox/store";
import { describe, expect, it } from "vitest";

const timing = { leaseMs: 3_000, pollIntervalMs: 20, publishTimeoutMs: 900, backoff: constant(1) };

/** A store whose box overrides some of its verbs. */
function withBox(store: MemoryStore, change: (box: Box) => Partial<Box>): Store {
  const box = store.box("outbox");
  const unchanged: Box = {
    own: (...args) => box.own(...args),
    renew: (...args) => box.renew(...args),
    release: (...args) => box.release(...args),
    read: (...args) => box.read(...args),
    due: (...args) => box.due(...args),
    late: (...args) => box.late(...args),
    suspect: (...args) => box.suspect(...args),
    settle: (...args) => box.settle(...args),
    promote: (...args) => box.promote(...args),
  };
  return { ...store, box: () => ({ ...unchanged, ...change(box) }) } as Store;
}

async function commit(store: MemoryStore, ...ids: string[]): Promise<void> {
  await store.transaction((tx) =>
    store.append(
      tx,
      "outbox",
      ids.map((id) => testMessage(id, { key: "k" })),
    ),
  );
}

function relayWith(store: Store, sender = recordingSender(), options: RelayOptions = {}) {
  const log = telemetryLog();
  return { relay: createRelay(store, sender, { ...timing, ...options, telemetry: log.telemetry }), log, sender };
}

it("reports of unconfirmed messages only what also holds for a relay that stops", async () => {
  const store = memoryStore();
  await commit(store, "1");
  const asked = gate();
  const broker = recordingSender({
    before: () => {
      asked.open();
      return new Promise<never>(() => {});
    },
  });
  const { relay, log } = relayWith(store, broker, { publishTimeoutMs: 30 });
  relay.start();
  await asked.opened;
  await relay.stop();
  const [{ error } = {}] = log.of("relay.failed");
  expect(error).toMatchObject({
    code: "publish-timeout",
    message: expect.stringContaining("they stay stored, and a relay sends them again unless they are confirmed first"),
  });
  const next = relayWith(store);
  next.relay.start();
  await next.log.until("message.sent");
  await next.relay.stop();
  expect(next.sender.ids()).toEqual(["1"]);
});

it("gives its lanes back and stops even if an archive never answers", async () => {
  const store = memoryStore();
  await commit(store, "1");
  const archiving = gate();
  const archive = () => {
    archiving.open();
    return new Promise<void>(() => {});
  };
  const options = { onSent: "keep", retentionMs: 1, cleanIntervalMs: 5, archive, publishTimeoutMs: 50 } as const;
  const { relay, log } = relayWith(store, recordingSender(), options);
  relay.start();
  await archiving.opened;
  await relay.stop();
  await log.until("relay.released");
  expect((await store.admin.stats()).lanes.unowned).toBe(64);
});

it.each(["key", "total"] as const)(
  "notices soon that its store is back, however often it has failed (%s)",
  async (order) => {
    const store = memoryStore();
    let isAway = true;
    const away = <A extends unknown[], R>(call: (...args: A) => Promise<R>) => {
      return (...args: A) => (isAway ? Promise.reject(new Error("connection refused")) : call(...args));
    };
    const failing = withBox(store, (box) => ({
      read: away((...args) => box.read(...args)),
      due: away((...args) => box.due(...args)),
      promote: away((...args) => box.promote(...args)),
    }));
    const { relay, log, sender } = relayWith(failing, recordingSender(), {
      order,
      leaseMs: 300,
      publishTimeoutMs: 90,
      backoff: exponential({ initialMs: 1, factor: 4 }),
    });
    relay.start();
    await log.until("relay.failed", 30);
    isAway = false;
    await commit(store, "1");
    await sender.until(1);
    await relay.stop();
    expect(Math.max(...log.of("relay.failed").map(({ retryInMs }) => retryInMs))).toBeLessThanOrEqual(30);
  },
);

it("moves the cursor past deleted rows, even in lanes without rows", async () => {
  const store = memoryStore();
  await commit(store, "1", "2", "3");
  const first = relayWith(store);
  first.relay.start();
  await first.log.until("message.sent", 3);
  await first.relay.stop();
  const readAfter: number[][] = [];
  const watched = withBox(store, (box) => ({
    read(lanes, ...rest) {
      if (lanes.length === 64) readAfter.push(lanes.map(({ after = 0 }) => after));
      return box.read(lanes, ...rest);
    },
  }));
  const { relay } = relayWith(watched);
  relay.start();
  await expect.poll(() => readAfter.length).toBeGreaterThan(1);
  await relay.stop();
  expect(new Set(readAfter[0])).toEqual(new Set([0]));
  expect(new Set(readAfter[1])).toEqual(new Set([3]));
});

it("reads rows behind a hot key about once, not again with every message that is sent", async () => {
  const store = memoryStore();
  await commit(store, ...Array.from({ length: 300 }, (_, n) => `${n}`));
  let refuses = true;
  const inner = recordingSender({ keepsOrder: false });
  const sender = faultySender(inner, () => (refuses ? "failed" : undefined)) as typeof inner;
  let read = 0;
  const watched = withBox(store, (box) => ({
    async due(...args) {
      const rows = await box.due(...args);
      read += rows.length;
      return rows;
    },
  }));
  const { relay, log } = relayWith(watched, sender, { backoff: constant(200) });
  relay.start();
  await log.until("message.failed");
  refuses = false;
  await log.until("message.sent", 300);
  await relay.stop();
  expect(inner.ids()).toEqual(Array.from({ length: 300 }, (_, n) => `${n}`));
  expect(read).toBeLessThan(1000);
});

it("reads all lanes from their start when another server answers", async () => {
  const store = memoryStore();
  let server = "primary";
  const reads: number[] = [];
  const watched = withBox(store, (box) => ({
    async read(lanes, ...rest) {
      reads.push(Math.min(...lanes.map(({ after = 0 }) => after)));
      return { ...(await box.read(lanes, ...rest)), server };
    },
  }));
  const { relay, log, sender } = relayWith(watched);
  await commit(store, "1");
  relay.start();
  await sender.until(1);
  await expect.poll(() => reads.at(-1)).toBe(1);
  server = "standby";
  expect(await log.until("relay.server-changed")).toMatchObject({ server: "standby" });
  const before = reads.length;
  await commit(store, "2");
  await sender.until(2);
  await relay.stop();
  expect(reads.slice(before - 1)).toContain(0);
});

describe("a relay whose store fails", () => {
  it("settles what it has sent before it sends more, however long the store is unreachable", async () => {
    const store = memoryStore();
    let failures = 0;
    const broken = withBox(store, (box) => ({
      settle: (...args) => (failures++ < 3 ? Promise.reject(new Error("store is away")) : box.settle(...args)),
    }));
    await commit(store, "1", "2");
    const { relay, log, sender } = relayWith(broken);
    relay.start();
    await log.until("relay.settled");
    await relay.stop();
    expect(sender.ids()).toEqual(["1", "2"]);
    expect(log.of("relay.failed").map(({ error }) => error.message)).toEqual(
      Array.from({ length: 3 }, () => "[store-failed] store is away"),
    );
  });

  it("continues after failures to read, own or release", async () => {
    const store = memoryStore();
    const fails = { own: 2, read: 2, release: 1 };
    const broken = withBox(store, (box) => ({
      own: (...args) => (fails.own-- > 0 ? Promise.reject(new Error("own failed")) : box.own(...args)),
      read: (...args) => (fails.read-- > 0 ? Promise.reject(new Error("read failed")) : box.read(...args)),
      release: (...args) => (fails.release-- > 0 ? Promise.reject(new Error("release failed")) : box.release(...args)),
    }));
    await commit(store, "1");
    const { relay, log, sender } = relayWith(broken);
    relay.start();
    await log.until("relay.settled");
    await relay.stop();
    expect(sender.ids()).toEqual(["1"]);
  });

  it.each(["schema-missing", "schema-outdated", "schema-newer"] as const)("ends its run for %s", async (code) => {
    const error = new PostboxError(code, "somebody has to act");
    const { relay, log } = relayWith(withBox(memoryStore(), () => ({ own: () => Promise.reject(error) })));
    await expect(relay.run()).rejects.toBe(error);
    expect(log.of("relay.failed")).toMatchObject([{ error, retryInMs: Number.POSITIVE_INFINITY }]);
    // An operator may have migrated meanwhile, so the relay can be started again.
    relay.start();
    await log.until("relay.failed", 2);
    await new Promise(setImmediate);
    relay.start();
    await log.until("relay.failed", 3);
    await expect(relay.stop()).rejects.toBe(error);
    const late = relayWith(withBox(memoryStore(), () => ({ read: () => Promise.reject(error) })));
    late.relay.start();
    await late.log.until("relay.failed");
    await expect(late.relay.stop()).rejects.toBe(error);
  });
});

it("asks for fewer bytes after a read that timed out, and for more after quick ones", async () => {
  const store = memoryStore();
  await commit(store, "1");
  const asked: (number | undefined)[] = [];
  const watched = withBox(store, (box) => ({
    read(lanes, options = {}, ...rest) {
      asked.push(options.maxBytes);
      return asked.length <= 2 ? new Promise<never>(() => {}) : box.read(lanes, options, ...rest);
    },
  }));
  const options = { leaseMs: 300, publishTimeoutMs: 90, maxInFlightBytes: 1000 };
  const { relay, sender } = relayWith(watched, recordingSender(), options);
  relay.start();
  await sender.until(1);
  await expect.poll(() => asked.length).toBeGreaterThan(5);
  await relay.stop();
  expect(asked.slice(0, 5)).toEqual([1000, 500, 250, 500, 1000]);
});

describe("a relay whose store does not answer", () => {
  it("gives up the call, reports it, continues when the store answers, and can be stopped", async () => {
    const store = memoryStore();
    let reads = 0;
    const mute = withBox(store, (box) => ({
      read: (...args) => (++reads === 1 ? new Promise(() => {}) : box.read(...args)),
      release: () => new Promise(() => {}),
    }));
    await commit(store, "1");
    const { relay, log, sender } = relayWith(mute, recordingSender(), {
      leaseMs: 150,
      pollIntervalMs: 5,
      publishTimeoutMs: 40,
    });
    relay.start();
    await sender.until(1);
    await relay.stop();
    expect(log.of("relay.failed").map(({ error }) => error.message)).toContain(
      "[store-timeout] the store did not read within 150 ms; the relay tries again",
    );
  });
});

describe("a relay whose user's code fails", () => {
  it("counts a message that its sender never reported as failed", async () => {
    const store = memoryStore();
    await commit(store, "1");
    const forgetful: Sender = { name: "forgetful", keepsOrder: true, send: () => Promise.resolve() };
    const log = telemetryLog();
    const relay = createRelay(store, forgetful, { ...timing, maxAttempts: 2, telemetry: log.telemetry });
    relay.start();
    const { error } = await log.until("message.parked");
    await relay.stop();
    expect(error.message).toContain("forgetful reported no outcome of this message");
  });

  it("survives an isPermanent and a backoff that throw, and sends the other messages once", async () => {
    const store = memoryStore();
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("bad"), testMessage("good")]));
    const inner = recordingSender();
    const sender = faultySender(inner, ({ id }) => (id === "bad" ? "failed" : undefined));
    const broken = () => {
      throw new Error("a bug of the user's");
    };
    const log = telemetryLog();
    const relay = createRelay(store, sender, {
      ...timing,
      isPermanent: broken,
      backoff: broken,
      telemetry: log.telemetry,
    });
    relay.start();
    const { retryInMs } = await log.until("message.failed");
    await relay.stop();
    expect(retryInMs).toBe(1000);
    expect(inner.ids()).toEqual(["good"]);
    expect(log.of("relay.failed")).toHaveLength(2);
  });

  it("parks nothing because isPermanent answers a promise, whatever becomes of it", async () => {
    const store = memoryStore();
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("1"), testMessage("2")]));
    const failed = new Set<string>();
    const sender = faultySender(recordingSender(), ({ id }) => {
      if (failed.has(id)) return undefined;
      failed.add(id);
      return "failed";
    });
    const answers = [async () => true, () => Promise.reject(new Error("not awaited"))];
    const isPermanent = (() => answers.pop()?.()) as unknown as () => boolean;
    const log = telemetryLog();
    const relay = createRelay(store, sender, { ...timing, isPermanent, telemetry: log.telemetry });
    relay.start();
    await log.until("message.sent", 2);
    await relay.stop();
    expect(log.of("message.parked")).toEqual([]);
    expect(log.of("relay.failed").map(({ error }) => error.code)).toEqual(["option-invalid", "option-invalid"]);
  });
});

describe("a relay's lease", () => {
  it("is renewed while it works; lanes that a renewal shows to be lost are not sent from", async () => {
    const store = memoryStore();
    let renewals = 0;
    const stolen = withBox(store, (box) => ({
      renew: async (...args) => (++renewals === 3 ? { paused: false, others: [], lanes: [] } : box.renew(...args)),
    }));
    const { relay, log, sender } = relayWith(stolen, recordingSender(), {
      leaseMs: 100,
      pollIntervalMs: 5,
      publishTimeoutMs: 20,
    });
    relay.start();
    expect(await log.until("relay.lost")).toMatchObject({ lanes: 64 });
    expect(renewals).toBe(3);
    // The next renewal shows that it still owns them.
    await log.until("relay.owned", 2);
    await commit(store, "1");
    await sender.until(1);
    await relay.stop();
  });

  it("that cannot be renewed in time is not trusted: nothing is sent", async () => {
    const store = memoryStore();
    let now = 0;
    const reading = gate();
    const mayRead = gate();
    let renewals = 0;
    const slow = withBox(store, (box) => ({
      renew: (...args) => (++renewals === 1 ? box.renew(...args) : Promise.reject(new Error("no answer"))),
      async read(...args) {
        const read = await box.read(...args);
        reading.open();
        await mayRead.opened;
        return read;
      },
    }));
    await commit(store, "1");
    const { relay, log, sender } = relayWith(slow, recordingSender(), {
      leaseMs: 300,
      publishTimeoutMs: 90,
      runtime: { monotonic: () => now },
    });
    relay.start();
    await reading.opened;
    now += 300;
    mayRead.open();
    await log.until("relay.lost");
    expect(sender.ids()).toEqual([]);
    await relay.stop();
  });

  it("that a settle finds lost is given up at once", async () => {
    const store = memoryStore();
    const stolen = withBox(store, (box) => ({
      settle: async (...args) => {
        await box.settle(...args);
        return { standing: new Set() };
      },
    }));
    await commit(store, "1");
    const { relay, log } = relayWith(stolen);
    relay.start();
    expect(await log.until("relay.lost")).toMatchObject({ lanes: 1 });
    await relay.stop();
    expect(log.of("message.sent")).toEqual([]);
  });

  it("is given back on stop, after the batch in flight is finished", async () => {
    const store = memoryStore();
    const sending = gate();
    const confirm = gate();
    const sender = recordingSender({
      before() {
        sending.open();
        return confirm.opened;
      },
    });
    await commit(store, "1");
    const { relay, log } = relayWith(store, sender);
    relay.start();
    await sending.opened;
    const stopped = relay.stop();
    confirm.open();
    await stopped;
    expect(log.of("relay.settled")).toHaveLength(1);
    expect(log.of("relay.released")).toHaveLength(1);
    await store.box("outbox").renew("another", 3_000, "key");
    expect(await store.box("outbox").own("another", 64)).toHaveLength(64);
  });
});

describe("a relay's options", () => {
  it("must leave room for renewals", () => {
    const create = (options: RelayOptions) => () => createRelay(memoryStore(), recordingSender(), options);
    expect(create({ pollIntervalMs: 5_000, leaseMs: 15_000 })).toThrow(
      "[option-invalid] createRelay: pollIntervalMs (5000) must be below a third of leaseMs (15000); " +
        "raise leaseMs above 15000, or lower pollIntervalMs",
    );
    expect(create({ publishTimeoutMs: 10_000 })).toThrow("raise leaseMs above 30000, or lower publishTimeoutMs");
    expect(create({ maxAttempt: 1 } as never)).toThrow("did you mean 'maxAttempts'?");
  });

  it("include those of the store's own purge, whose figures are reported", async () => {
    const asked: object[] = [];
    const store = {
      ...memoryStore(),
      purgeRules: { partitions: { expected: "true or false", test: (given: unknown) => typeof given === "boolean" } },
      async purge(options: PurgeOptions & { readonly partitions?: boolean }) {
        asked.push(options);
        return { busy: false, removed: 1, partitionsDropped: 2 };
      },
    };
    const log = telemetryLog();
    const { telemetry } = log;
    const options = { onSent: "keep", retentionMs: 5, telemetry } as const;
    const relay = createRelay(store, recordingSender(), { ...options, partitions: false });
    relay.start();
    const cleaned = await log.until("relay.cleaned");
    await relay.stop();
    expect(asked[0]).toEqual({ box: "outbox", retentionMs: 5, partitions: false, signal: expect.any(AbortSignal) });
    expect(cleaned).toMatchObject({ removed: 1, figures: { partitionsDropped: 2 } });
    const create = (more: object) => () => createRelay(store, recordingSender(), more);
    expect(create({ ...options, partitions: "no" })).toThrow("option 'partitions' must be");
    expect(create({ partitions: false })).toThrow("partitions has no effect without retentionMs; set both");
  });

  it("rejects values that are not a store or a sender", () => {
    const create = createRelay as unknown as (...args: unknown[]) => unknown;
    for (const store of [{}, undefined]) {
      expect(() => create(store, recordingSender())).toThrow("[option-invalid] createRelay: give a store, such as");
    }
    for (const sender of [undefined, null, {}, memoryBroker()]) {
      expect(() => create(memoryStore(), sender)).toThrow(
        "[option-invalid] createRelay(store, sender): the second argument is no sender",
      );
    }
    const receiver = outboxReceiver as unknown as (...args: unknown[]) => unknown;
    expect(() => receiver({})).toThrow("[option-invalid] outboxReceiver: give a store, such as");
    expect(() => receiver(memoryStore(), { batchSize: 1 })).toThrow("outboxReceiver: unknown option 'batchSize'");
  });

  it("two runs of one object are two relays, which share the lanes", async () => {
    const store = memoryStore();
    const { relay, log, sender } = relayWith(store);
    const controller = new AbortController();
    const runs = [relay.run(controller.signal), relay.run(controller.signal)];
    await commit(store, "1", "2", "3");
    await log.until("relay.settled");
    controller.abort();
    await Promise.all(runs);
    expect(sender.ids()).toEqual(["1", "2", "3"]);
  });

  it("cannot be started twice", async () => {
    const { relay } = relayWith(memoryStore());
    relay.start();
    expect(() => relay.start()).toThrow("[already-started]");
    await relay.stop();
    await relay.stop();
  });

  it("survives a listener that throws", async () => {
    const store = memoryStore();
    const sender = recordingSender();
    await commit(store, "1");
    let calls = 0;
    const telemetry = () => {
      if (++calls % 2 === 0) throw new Error("a bug in the logger");
      return Promise.reject(new Error("a bug in an asynchronous one")) as never;
    };
    const relay = createRelay(
      store,
      faultySender(sender, () => undefined),
      { ...timing, telemetry },
    );
    relay.start();
    await sender.until(1);
    await relay.stop();
    expect(store.contents("outbox").pending).toEqual([]);
  });
});

describe("a relay", () => {
  it("reads a retry when it is due, not at its next poll", async () => {
    const store = memoryStore();
    let refusals = 1;
    const inner = recordingSender();
    const sender = faultySender(inner, () => (refusals-- > 0 ? "failed" : undefined));
    await commit(store, "1");
    const relay = createRelay(store, sender, { leaseMs: 30_000, pollIntervalMs: 9_000, backoff: constant(10) });
    relay.start();
    await inner.until(1);
    await relay.stop();
  });

  it("sends all rows that waited behind a failure in turn, without waiting for its next poll", async () => {
    const store = memoryStore();
    let refusals = 1;
    const inner = recordingSender();
    const sender = faultySender(inner, () => (refusals-- > 0 ? "failed" : undefined));
    const ids = Array.from({ length: 60 }, (_, n) => `${n}`);
    await commit(store, ...ids);
    const relay = createRelay(store, sender, { leaseMs: 30_000, pollIntervalMs: 9_000, backoff: constant(10) });
    relay.start();
    await inner.until(60);
    await relay.stop();
    expect(inner.ids()).toEqual(ids);
  });

  it("with a total order, sends a suspect alone, between stored outcomes", async () => {
    const store = memoryStore();
    await commit(store, "1", "2", "3");
    const box = store.box("outbox");
    await box.renew("x", 60_000, "total");
    const lanes = await box.own("x", 64, { least: 64 });
    const { rows } = await box.read(lanes.map(({ lane }) => ({ lane, limit: 10 })));
    const [, second] = rows as [Row, Row, Row];
    await box.suspect(lanes, [{ ...second, crashes: 2 }]);
    await box.release("x");
    const happened: string[] = [];
    const inner = recordingSender();
    const watched = withBox(store, (box) => ({
      async settle(lanes, settlements, ...rest) {
        await new Promise((resolve) => setTimeout(resolve, 5));
        const settled = await box.settle(lanes, settlements, ...rest);
        for (const { row } of settlements) happened.push(`stored ${row.message.id}`);
        return settled;
      },
    }));
    const sender: Sender = {
      ...inner,
      async send(batch, ...rest) {
        for (const { id } of batch) happened.push(`sent ${id}`);
        await inner.send(batch, ...rest);
      },
    };
    const { relay, log } = relayWith(watched, sender as typeof inner, { order: "total" });
    relay.start();
    await log.until("message.sent", 3);
    await relay.stop();
    expect(happened).toEqual(["sent 1", "stored 1", "sent 2", "stored 2", "sent 3", "stored 3"]);
  });

  it("with a total order, sends nothing behind a parked message until that is stored", async () => {
    const store = memoryStore();
    const [storing, mayStore] = [gate(), gate()];
    const slow = withBox(store, (box) => ({
      async settle(...args) {
        storing.open();
        await mayStore.opened;
        return box.settle(...args);
      },
    }));
    const inner = recordingSender();
    const sender = faultySender(inner, ({ id }) => (id === "1" ? "rejected" : undefined));
    await commit(store, "1", "2");
    const relay = createRelay(slow, sender, { ...timing, order: "total" });
    relay.start();
    await storing.opened;
    expect(await settlesWithin(inner.until(1), 100)).toBe(false);
    mayStore.open();
    await inner.until(1);
    await relay.stop();
    expect(inner.ids()).toEqual(["2"]);
  });
});
