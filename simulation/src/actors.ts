import {
  createOutbox,
  createRelay,
  createRouter,
  durableInbox,
  inbox,
  type Notifier,
  outboxOutputs,
  outboxReceiver,
  PermanentError,
  type RelayOptions,
  type RunsReceiver,
  type TelemetryEvent,
  transaction,
} from "postbox";
import type { MemoryTransaction } from "postbox/memory";
import { Link } from "./link.js";
import { type Consumer, consumers, Handled, Placed } from "./orders.js";
import type { Fault, Role } from "./plan.js";
import { SimulatedProcess } from "./process.js";
import { simulatedNotifier } from "./simulated-notifier.js";
import { type SimulatedStore, simulatedStore } from "./simulated-store.js";
import type { Stage } from "./stage.js";

/** A part of a service that runs in its own simulated process. */
export interface Actor {
  readonly process: SimulatedProcess;
  readonly links: Readonly<Record<"store" | "broker", Link>>;
  readonly store: SimulatedStore;
  readonly notifier: Notifier | false;
  /** Stops gracefully: work in flight is finished. */
  stop(): Promise<void>;
  /** Of a consumer: cuts its connection to the broker. */
  loseConnection?(): void;
}

/** Starts an actor; `life` counts how often it was started. */
export function startActor(stage: Stage, role: Role, index: number, life: number): Actor {
  const process = bootProcess(stage, role, index, life);
  if (role === "relay") return startRelay(stage, process);
  if (role === "consumer") return (stage.plan.direct ? startDirectConsumer : startConsumer)(stage, process);
  return { ...process, stop: async () => {} };
}

type Booted = ReturnType<typeof bootProcess>;

/** Makes what every process begins with: its clock, its connections and its store. */
function bootProcess(stage: Stage, role: Role, index: number, life: number) {
  const { plan, world, chance, recorder, database, facts } = stage;
  const name = `${role}-${index}.${life}`;
  const death = plan.faults.find(
    (fault) => fault.kind === "death" && fault.role === role && fault.index === index && life === 1,
  ) as Extract<Fault, { kind: "death" }> | undefined;
  const reached: ConstructorParameters<typeof SimulatedProcess>[3] = (failpoint) => stage.failpoints.add(failpoint);
  const process = new SimulatedProcess(world, name, chance.fork(), reached, death);
  const links = {
    store: new Link(world, process, chance.fork(), () => stage.storeWeather()),
    broker: new Link(world, process, chance.fork(), () => stage.brokerLink()),
  };
  const storeChance = chance.fork();
  const store = simulatedStore({
    database,
    facts,
    link: links.store,
    recorder,
    chance: storeChance,
    commitUnknown: () => stage.during("commits unknown")[0]?.share ?? 0,
    direct: plan.direct,
  });
  const telemetry = (event: TelemetryEvent): void => {
    if (process.alive) recorder.telemetry(name, event);
  };
  const notifier = plan.hint && simulatedNotifier(facts.listeners, links.store, recorder, storeChance);
  return { process, links, store, notifier, telemetry, runtime: process.runtime };
}

function startRelay(stage: Stage, own: Booted): Actor {
  const sender = stage.broker.sender(own.links.broker, stage.plan.keepsOrder);
  const relay = createRelay(own.store, sender, relayOptions(stage, own));
  relay.start();
  return { ...own, stop: () => relay.stop() };
}

function relayOptions({ plan, backoff }: Stage, { notifier, telemetry, runtime }: Booted): RelayOptions {
  return {
    ...plan.relay,
    publishTimeoutMs: plan.relay.leaseMs / 4,
    notifier,
    backoff,
    telemetry,
    runtime,
  };
}

/** A consumer that receives straight from the outbox. */
function startDirectConsumer(stage: Stage, own: Booted): Actor {
  const router = routerFor(stage, own, "billing");
  const { publishTimeoutMs: _, batchSize: __, ...options } = relayOptions(stage, own);
  router.start(outboxReceiver(own.store, options));
  return { ...own, stop: () => router.stop() };
}

function startConsumer(stage: Stage, own: Booted): Actor {
  /** Cuts the latest connection of each queue. */
  const connections = new Map<Consumer, () => void>();
  const routers = consumers.map((consumer) => {
    const router = routerFor(stage, own, consumer);
    router.start(stage.broker.receiver(own.links.broker, (lose) => connections.set(consumer, lose)));
    return router;
  });
  return {
    ...own,
    stop: async () => void (await Promise.all(routers.map((router) => router.stop()))),
    loseConnection: () => {
      for (const lose of connections.values()) lose();
    },
  };
}

function routerFor(
  stage: Stage,
  { process, store, notifier, telemetry, runtime }: Booted,
  consumer: Consumer,
): RunsReceiver {
  const { plan, chance, recorder, backoff } = stage;
  const { strictKeyOrder, handler } = plan;
  const outbox = createOutbox(store, { source: "/consumer", notifier, strictKeyOrder, runtime });
  const handle = async (name: string, tx: MemoryTransaction, id: string) => {
    if (handler.ms > 0) await process.sleep(chance.between(0, handler.ms));
    for (const { share, forGood } of stage.during("handlers fail")) {
      if (!chance.is(share)) continue;
      recorder.record({ what: "fault", kind: "a handler failed" });
      throw forGood ? new PermanentError("never") : new Error("not now");
    }
    recorder.record({ what: "effect", tx: store.nameOf(tx), consumer, id });
    if (consumer !== "billing" || !plan.secondHop) return [];
    return [(name.startsWith(" ") ? Handled.keyless : Handled.keyed).message({ name })];
  };
  const wanted = consumer === "billing" ? Placed : Handled;
  const { leaseMs, pollIntervalMs } = plan.relay;
  const { retentionMs } = plan;
  const timing = {
    leaseMs,
    pollIntervalMs,
    ...(retentionMs === undefined ? { cleanIntervalMs: 10_000 } : { retentionMs, cleanIntervalMs: 200 }),
  };
  return createRouter(consumer, { telemetry, runtime, backoff, concurrency: handler.concurrency, maxAttempts: 1_000 })
    .use(transaction(store))
    .use(plan.durable ? durableInbox(store, timing) : inbox(store, timing))
    .use(outboxOutputs(outbox))
    .on(wanted.keyed, ({ name }, { tx, message }) => handle(name, tx, message.id))
    .on(wanted.keyless, ({ name }, { tx, message }) => handle(name, tx, message.id));
}
