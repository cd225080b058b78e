import {
  constant,
  createOutbox,
  createRelay,
  createRouter,
  defineEvent,
  durableInbox,
  inbox,
  inboxOf,
  outboxOutputs,
  type Relay,
  type RunsReceiver,
  type StandardSchema,
  type Store,
  type Telemetry,
  transaction,
} from "postbox";
import { type MemoryBroker, type MemoryReceiver, memoryBroker } from "postbox/memory";
import type { Failpoint, Runtime } from "postbox/store";
import { expect } from "vitest";
import { freezeAt } from "../freeze-at.js";
import { gate } from "../gate.js";
import { patiently } from "../patience.js";
import {
  emptyBox,
  type StoreHarness,
  type StoreHarnessContents,
  type StoreProcess,
} from "../store-suite/store-harness.js";
import { type TelemetryLog, telemetryLog } from "../telemetry-log.js";

interface Order {
  readonly order: string;
}
const schema: StandardSchema<Order> = {
  "~standard": { version: 1, vendor: "testkit", validate: (value) => ({ value: value as Order }) },
};
const orderEvent = (type: string) => defineEvent({ type, schema, key: ({ order }) => `key-${order.length % 3}` });
const Placed = orderEvent("crash.Placed");
const Handled = orderEvent("crash.Handled");

const orders = Array.from({ length: 12 }, (_, n) => `order-${"i".repeat(n + 1)}`);
const timing = { leaseMs: 3_000, pollIntervalMs: 20, publishTimeoutMs: 900, batchSize: 4, backoff: constant(1) };

/** Which middleware the consumer uses. */
export type InboxMode = "inbox" | "durableInbox";
const inboxTiming = { leaseMs: timing.leaseMs, pollIntervalMs: timing.pollIntervalMs };

export interface CrashRun {
  readonly orders: readonly string[];
  readonly effects: readonly string[];
  readonly contents: StoreHarnessContents;
  /** Failpoints at which no process crashed, since they were not hit that often. */
  readonly unreached: readonly Failpoint[];
}

/** Where a process crashes: at this hit of this failpoint. */
export interface Crash {
  readonly failpoint: Failpoint;
  readonly times: number;
}

/** A producer places so many orders before it waits for the relay. */
const third = Math.ceil(orders.length / 3);

const roles = ["producer", "relay", "consumer"] as const;
type Role = (typeof roles)[number];

export function roleOf(failpoint: Failpoint): Role {
  return failpoint.startsWith("outbox.") ? "producer" : failpoint.startsWith("relay.") ? "relay" : "consumer";
}

/**
 * Places, relays, handles and audits orders, and records each step in a table of the user. Processes crash at the given
 * failpoints, at most one of each role; replacements finish their work.
 */
export async function crashRun<Tx>(
  harness: StoreHarness<Tx>,
  mode: InboxMode,
  ...crashes: readonly Crash[]
): Promise<CrashRun> {
  const flow = new Flow(harness, mode);
  const deaths = crashes.map(({ failpoint, times }) => ({
    role: roleOf(failpoint),
    failpoint,
    ...freezeAt(failpoint, { times }),
  }));
  const mortal = (role: Role) => deaths.find((death) => death.role === role)?.runtime ?? {};

  const consumer = await flow.consumer(mortal("consumer"));
  const auditor = await flow.auditor();
  const relay = await flow.relay(mortal("relay"));
  const producer = await flow.producer(mortal("producer"));
  void producer.place(orders);
  if (deaths.some(({ failpoint }) => failpoint === "relay.released")) {
    await flow.log.until("relay.settled");
    void relay.relay.stop();
  }

  const heirs: Record<Role, () => Promise<Running>> = {
    producer: async () => {
      const heir = await flow.producer({});
      // Places only the orders that the crashed producer has not committed, as a retrying client would.
      const placed = new Set(await harness.effects());
      await heir.place(orders.filter((order) => !placed.has(`placed ${order}`)));
      return heir;
    },
    relay: () => flow.relay({}),
    consumer: () => flow.consumer({}),
  };
  const living: Record<Role, Running> = { producer, relay, consumer };
  const unreached = new Set(crashes.map(({ failpoint }) => failpoint));
  const succession = deaths.map(async ({ role, failpoint, reached }) => {
    // A process that never reaches its failpoint is killed in the end.
    await Promise.race([reached.then(() => unreached.delete(failpoint)), flow.audited]);
    await living[role].kill();
    if (role !== "producer") await harness.advance(timing.leaseMs);
    living[role] = await heirs[role]();
  });
  await patiently(Promise.all(succession), () => `every death; ${[...unreached].join(", ")} not reached`);
  await patiently(flow.audited, () => `${orders.length} audited orders; ${flow.log.of("delivery.acked").length} acks`);
  await patiently(emptied(harness), () => "empty boxes");

  for (const role of roles) await living[role].end();
  await auditor.end();
  const [effects, contents] = [await harness.effects(), await harness.contents("outbox")];
  for (const consumer of ["handle", "audit"]) {
    const { done, ...left } = await harness.contents(inboxOf(consumer));
    const { done: _, ...nothing } = emptyBox;
    expect(left).toEqual(nothing);
    expect(done).toHaveLength(orders.length);
  }
  return { orders, effects, contents, unreached: [...unreached] };
}

/** Resolves when the replacements have settled, or sent again, what the crashed processes had not settled. */
async function emptied<Tx>(harness: StoreHarness<Tx>): Promise<void> {
  for (let left = 1; left > 0; await new Promise((resolve) => setTimeout(resolve, 10))) {
    left = 0;
    for (const box of ["outbox", inboxOf("handle"), inboxOf("audit")]) {
      const { pending, wait } = await harness.contents(box);
      left += pending.length + wait.length;
    }
  }
}

/** Every order was placed, handled and audited once, and the outbox is empty. */
export function expectNothingLost({ orders, effects, contents }: CrashRun): void {
  const expected = orders.flatMap((order) => [`placed ${order}`, `handled ${order}`, `audited ${order}`]);
  expect([...effects].sort()).toEqual(expected.sort());
  expect(contents).toEqual(emptyBox);
}

/** A part that runs in a process of its own: `end` stops it in good order, `kill` crashes it. */
interface Running {
  end(): Promise<void>;
  kill(): Promise<void>;
}

class Flow<Tx> {
  readonly log: TelemetryLog = telemetryLog();
  readonly #audited = gate();
  readonly #harness: StoreHarness<Tx>;
  readonly #mode: InboxMode;
  readonly #broker: MemoryBroker = memoryBroker();

  constructor(harness: StoreHarness<Tx>, mode: InboxMode) {
    this.#harness = harness;
    this.#mode = mode;
    this.#broker.bind("handle", [Placed]);
    this.#broker.bind("audit", [Handled]);
  }

  /** Resolves when every order is audited. */
  get audited(): Promise<void> {
    return this.#audited.opened;
  }

  async producer(runtime: Partial<Runtime>): Promise<Running & { place(orders: readonly string[]): Promise<void> }> {
    const process = await this.#process();
    const outbox = createOutbox(process.store, { source: "/producer", runtime });
    return {
      place: async (wanted) => {
        for (const [index, order] of wanted.entries()) {
          // In three parts, so that a relay settles at least three times, however slow the store is.
          if (index > 0 && index % third === 0) await this.log.until("relay.settled", index / third);
          await process.store.transaction(async (tx) => {
            await this.#harness.effect(tx, `placed ${order}`);
            await outbox.in(tx).publish(Placed, { order });
          });
        }
      },
      end: () => process.kill(),
      kill: () => process.kill(),
    };
  }

  async relay(runtime: Partial<Runtime>): Promise<Running & { readonly relay: Relay }> {
    const process = await this.#process();
    const { telemetry } = this.log;
    const relay = createRelay(process.store, this.#broker.sender(), { ...timing, telemetry, runtime });
    relay.start();
    return {
      relay,
      end: async () => {
        await relay.stop();
        await process.kill();
      },
      kill: () => process.kill(),
    };
  }

  async consumer(runtime: Partial<Runtime>): Promise<Running> {
    const process = await this.#process();
    const { telemetry } = this.log;
    const store: Store = process.store;
    const router = createRouter("handle", { telemetry, runtime, backoff: constant(1) })
      .use(transaction(store))
      .use(this.#mode === "inbox" ? inbox(store, inboxTiming) : durableInbox(store, inboxTiming))
      .use(outboxOutputs(createOutbox(store, { source: "/consumer" })))
      .on(Placed, async ({ order }, { tx }) => {
        await this.#harness.effect(tx as Tx, `handled ${order}`);
        return [Handled.message({ order })];
      });
    return this.#running(process, router);
  }

  async auditor(): Promise<Running> {
    const process = await this.#process();
    const store: Store = process.store;
    const audited = new Set<string>();
    const telemetry: Telemetry = (event) => {
      this.log.telemetry(event);
      if (event.name === "delivery.acked" && audited.add(event.id).size === orders.length) this.#audited.open();
    };
    const router = createRouter("audit", { telemetry, backoff: constant(1) })
      .use(transaction(store))
      .use(inbox(store, inboxTiming))
      .on(Handled, ({ order }, { tx }) => this.#harness.effect(tx as Tx, `audited ${order}`));
    return this.#running(process, router);
  }

  #running(process: StoreProcess<Tx>, router: RunsReceiver): Running {
    const receiver: MemoryReceiver = this.#broker.receiver();
    router.start(receiver);
    return {
      end: async () => {
        await router.stop();
        await process.kill();
      },
      kill: async () => {
        receiver.crash();
        await process.kill();
      },
    };
  }

  #process(): Promise<StoreProcess<Tx>> {
    if (this.#harness.process === undefined) throw new Error("the feature 'processes' needs harness.process()");
    return this.#harness.process();
  }
}
