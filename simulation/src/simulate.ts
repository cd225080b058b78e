import { checkHistory, type Violation } from "@postbox/testkit/history";
import {
  createOutbox,
  createRelay,
  createRouter,
  defineEvent,
  exponential,
  type Failpoint,
  inbox,
  outboxOutputs,
  PermanentError,
  type StandardSchema,
  transaction,
} from "postbox";
import { memoryDatabase } from "postbox/memory";
import { createChance } from "./chance.js";
import { Link, type Weather } from "./link.js";
import type { Fault, Plan, PlannedTransaction, Role } from "./plan.js";
import { SimulatedProcess } from "./process.js";
import { Recorder } from "./recorder.js";
import { type BrokerWeather, type Poison, SimulatedBroker } from "./simulated-broker.js";
import { DatabaseFacts, type SimulatedStore, simulatedStore } from "./simulated-store.js";
import type { Situation } from "./situations.js";
import { World } from "./world.js";

export interface Simulated {
  readonly violations: readonly (Violation | Leak)[];
  readonly events: number;
  readonly situations: ReadonlyMap<Situation, number>;
  readonly failpoints: ReadonlySet<Failpoint>;
}

/** Something goes on though everything has been stopped. */
interface Leak {
  readonly rule: "leak" | "stuck";
  readonly text: string;
}

interface Order {
  readonly name: string;
}
const schema: StandardSchema<Order> = {
  "~standard": { version: 1, vendor: "simulation", validate: (value) => ({ value: value as Order }) },
};
const events = (type: string) => ({
  keyed: defineEvent({ type, schema, key: ({ name }) => name.slice(0, name.indexOf(" ")) }),
  keyless: defineEvent({ type: `${type}.keyless`, schema }),
});
const Placed = events("order.placed");
const Handled = events("order.handled");
const queues = ["billing", "audit"] as const;

const box = "outbox";
const calm: Weather = { travelMs: 1, slow: 0, fails: 0, answerLost: 0, hangs: 0 };
const kind: BrokerWeather = { refuses: 0, rejects: 0, dies: 0, confirmLost: 0, repeats: 0 };
/** More than enough for leases, retries, restarts and a look all the way down. */
const patienceMs = 4 * 60_000;

/** Something that runs in a process, and is replaced when it dies. */
interface Running {
  readonly process: SimulatedProcess;
  readonly links: Readonly<Record<"store" | "broker", Link>>;
  readonly store: SimulatedStore;
  stop(): Promise<void>;
  loseConnection?(): void;
}

/** Plays one plan to its end, and judges it. */
export async function simulate(plan: Plan, trace?: (line: string) => void): Promise<Simulated> {
  const chance = createChance(plan.seed ^ 0x5eed);
  const world = new World(chance.fork());
  const recorder = new Recorder(world, trace);
  const database = memoryDatabase({ runtime: world.runtime });
  const facts = new DatabaseFacts();
  const reached = new Set<Failpoint>();
  const poisons = new Map<string, Poison>();
  const running = new Map<string, Running>();
  let open = plan.transactions.length;
  let isOver = false;

  const isOn = ({ from, to }: { readonly from: number; readonly to: number }) => world.now >= from && world.now < to;
  const during = <K extends Fault["kind"]>(kind: K) =>
    plan.faults.filter(
      (fault): fault is Extract<Fault, { kind: K; from: number }> =>
        fault.kind === kind && "from" in fault && isOn(fault),
    );
  const storeWeather = (): Weather => Object.assign({}, calm, ...during("store weather").map(({ weather }) => weather));
  const brokerWeather = (): BrokerWeather =>
    Object.assign({}, kind, ...during("broker weather").map(({ weather }) => weather));
  const broker = new SimulatedBroker(world, {
    box,
    recorder,
    chance: chance.fork(),
    weather: brokerWeather,
    poisonOf: (message) => poisons.get(message.id),
  });
  broker.bind("billing", [Placed.keyed, Placed.keyless]);
  broker.bind("audit", [Handled.keyed, Handled.keyless]);

  const backoff = exponential({ initialMs: 20, maxMs: 500 });

  /** The beginning of every process: its clock, its connections, its store. */
  function boot(role: Role, index: number, life: number) {
    const name = `${role}-${index}.${life}`;
    const death = plan.faults.find(
      (fault) => fault.kind === "death" && fault.role === role && fault.index === index && life === 1,
    ) as Extract<Fault, { kind: "death" }> | undefined;
    const process = new SimulatedProcess(world, name, chance.fork(), (failpoint) => reached.add(failpoint), death);
    const links = {
      store: new Link(world, process, chance.fork(), storeWeather),
      broker: new Link(world, process, chance.fork(), () => calm),
    };
    const store = simulatedStore({
      database,
      facts,
      link: links.store,
      recorder,
      chance: chance.fork(),
      commitUnknown: () => during("commits unknown")[0]?.share ?? 0,
      hintLost: 0.1,
    });
    process.onDeath(() => {
      recorder.record({ what: "fault", kind: `${name} died` });
      world.at(chance.between(10, 800), () => {
        if (!isOver && running.get(`${role}-${index}`)?.process === process) start(role, index, life + 1);
      });
    });
    const telemetry: Parameters<typeof recorder.telemetry>[1] extends infer E ? (event: E) => void : never = (
      event,
    ) => {
      if (process.alive) recorder.telemetry(name, event);
    };
    return { process, links, store, telemetry, runtime: process.runtime };
  }

  function start(role: Role, index: number, life: number): void {
    running.set(`${role}-${index}`, starters[role](index, life));
  }

  const starters: Record<Role, (index: number, life: number) => Running> = {
    producer: (index, life) => ({ ...boot("producer", index, life), stop: async () => {} }),

    relay(index, life) {
      const { telemetry, ...own } = boot("relay", index, life);
      const { leaseMs } = plan.relay;
      const relay = createRelay(own.store, broker.sender(own.links.broker, plan.keepsOrder), {
        ...plan.relay,
        publishTimeoutMs: leaseMs / 4,
        hint: plan.hint,
        backoff,
        telemetry,
        runtime: own.runtime,
      });
      relay.start();
      return { ...own, stop: () => relay.stop() };
    },

    consumer(index, life) {
      const { telemetry, ...own } = boot("consumer", index, life);
      let loseConnections: (() => void)[] = [];
      const routers = queues.map((consumer) => {
        const { store } = own;
        const router = createRouter(consumer, {
          telemetry,
          runtime: own.runtime,
          backoff,
          concurrency: plan.handler.concurrency,
          maxAttempts: 1_000,
        })
          .use(transaction(store))
          .use(inbox(store))
          .use(
            outboxOutputs(
              createOutbox(store, {
                source: "/consumer",
                hint: plan.hint,
                strictKeyOrder: plan.strictKeyOrder,
                runtime: own.runtime,
              }),
            ),
          );
        const handle = async (tx: Parameters<SimulatedStore["nameOf"]>[0], id: string): Promise<void> => {
          if (plan.handler.ms > 0) await own.process.sleep(chance.between(0, plan.handler.ms));
          for (const { share, forGood } of during("handlers fail")) {
            if (!chance.is(share)) continue;
            recorder.record({ what: "fault", kind: "a handler failed" });
            throw forGood ? new PermanentError("never") : new Error("not now");
          }
          recorder.record({ what: "effect", tx: store.nameOf(tx), consumer, id });
        };
        const outputs = (name: string) =>
          consumer === "billing" && plan.secondHop
            ? [(name.startsWith(" ") ? Handled.keyless : Handled.keyed).message({ name })]
            : [];
        const wanted = consumer === "billing" ? Placed : Handled;
        const full = [wanted.keyed, wanted.keyless].reduce(
          (built, event) =>
            built.on(event, async ({ name }, { tx, message }) => {
              await handle(tx, message.id);
              return outputs(name);
            }) as typeof built,
          router,
        );
        full.start(
          broker.receiver(own.links.broker, (lose) => (loseConnections = [...loseConnections, lose].slice(-2))),
        );
        return full;
      });
      return {
        ...own,
        stop: async () => void (await Promise.all(routers.map((router) => router.stop()))),
        loseConnection: () => {
          for (const lose of loseConnections) lose();
        },
      };
    },
  };

  /** By the producer that lives then. */
  function place(planned: PlannedTransaction): void {
    const producer = running.get(`producer-${planned.producer}`);
    if (producer === undefined || !producer.process.alive) {
      world.at(50, () => place(planned));
      return;
    }
    const { process, store } = producer;
    const { strictKeyOrder, hint } = plan;
    const outbox = createOutbox(store, { source: "/producer", runtime: process.runtime, strictKeyOrder, hint });
    const done = () => {
      if (left) open--;
      left = false;
    };
    let left = true;
    process.onDeath(done);
    store
      .transaction(async (tx) => {
        let number = 0;
        for (const keys of planned.calls) {
          const drafts = keys.map((key) =>
            (key === null ? Placed.keyless : Placed.keyed).message({
              name: `${key ?? ""} ${planned.name}/${++number}`,
            }),
          );
          const published = await outbox.in(tx).publishAll(drafts);
          const first = published[0];
          if (planned.poison !== undefined && first !== undefined && number === keys.length) {
            poisons.set(first.id, planned.poison);
          }
          if (planned.thinkMs > 0) await process.sleep(planned.thinkMs);
        }
        if (planned.rollsBack) throw new Error("thought better of it");
      })
      .catch(() => {})
      .finally(done);
  }

  function wreak(fault: Fault): void {
    if (!("at" in fault)) return;
    world.at(fault.at, () => {
      // A router that stops gives back what it has not handled: that is delivered again.
      recorder.record({ what: "fault", kind: fault.kind });
      if (fault.kind === "clock jumps") return database.advance(fault.ms);
      if (fault.kind === "connection lost") return running.get(`consumer-${fault.index}`)?.loseConnection?.();
      const target = running.get(`${fault.role}-${fault.index}`);
      if (target === undefined || !target.process.alive) return;
      if (fault.kind === "crash") target.process.die();
      else if (fault.kind === "pause") target.process.pause(fault.ms);
      else if (fault.kind === "store cut off") target.links.store.cut(fault.ms);
      else if (fault.kind === "broker cut off") target.links.broker.cut(fault.ms);
      else restart(fault.role, fault.index, target);
    });
  }

  /** As a deployment does: the next one begins before the last has ended, or after. */
  function restart(role: Role, index: number, target: Running): void {
    const next = () => {
      if (!isOver && running.get(`${role}-${index}`) === target) start(role, index, 100 + Math.floor(world.now));
    };
    leaving.push(target);
    if (chance.is(0.5)) next();
    target.stop().then(next, next);
  }
  const leaving: Running[] = [];

  for (let index = 0; index < plan.relays; index++) start("relay", index, 1);
  for (let index = 0; index < plan.consumers; index++) start("consumer", index, 1);
  for (let index = 0; index < 3; index++) start("producer", index, 1);
  for (const planned of plan.transactions) world.at(planned.at, () => place(planned));
  for (const fault of plan.faults) {
    wreak(fault);
    if ("from" in fault && !isOnlyRefusal(fault)) {
      world.at(fault.from, () => recorder.record({ what: "fault", kind: fault.kind }));
    }
  }

  const isRested = () => {
    if (world.now < plan.healsAt || open > 0 || broker.depth(queues) > 0) return false;
    const { pending, wait, parked } = database.contents(box);
    if (plan.relay.onPark === "continue") return pending.length + wait.length === 0;
    const heldKeys = new Set(parked.map(({ message }) => message.key));
    return [...pending, ...wait].every(({ key }) => key !== undefined && heldKeys.has(key));
  };
  const violations: Leak[] = [];
  if (!(await world.run(isRested, 50, patienceMs))) {
    violations.push({ rule: "stuck", text: `not at rest ${patienceMs / 1000} s after the last trouble` });
  }
  isOver = true;
  let stopped = 0;
  const everyone = [...running.values(), ...leaving].filter(({ process }) => process.alive);
  for (const one of everyone)
    void one.stop().then(
      () => stopped++,
      () => stopped++,
    );
  for (const { process } of everyone) process.onDeath(() => stopped++);
  if (!(await world.run(() => stopped >= everyone.length, 10, 60_000))) {
    violations.push({ rule: "leak", text: `${everyone.length - stopped} of ${everyone.length} did not stop` });
  }
  // What the dead had set their clocks for passes.
  await world.run(() => world.pending === 0, 10_000, 120_000);
  if (world.pending > 0) violations.push({ rule: "leak", text: `${world.pending} timers are left` });

  for (const queue of queues) {
    for (const id of broker.parked(queue)) recorder.record({ what: "refused", consumer: queue, id });
  }
  const { pending, wait, parked, done } = database.contents(box);
  const ids = (messages: readonly { readonly id: string }[]) => messages.map(({ id }) => id);
  const contents = {
    pending: ids(pending),
    wait: ids(wait),
    parked: ids(parked.map(({ message }) => message)),
    done: ids(done),
  };
  recorder.record({ what: "rested", box, contents });
  const checked = checkHistory(recorder.history, promisesOf(plan));
  return {
    violations: [...violations, ...checked],
    events: recorder.history.length,
    situations: recorder.situations,
    failpoints: reached,
  };
}

/** After a refusal nothing is sent twice that was taken before. */
function isOnlyRefusal(fault: Fault): boolean {
  return (
    fault.kind === "broker weather" &&
    Object.keys(fault.weather).every((what) => what === "refuses" || what === "rejects")
  );
}

function promisesOf(plan: Plan) {
  const { order, mode, onPark } = plan.relay;
  const disturbs = ({ kind, ...fault }: Fault) =>
    kind === "handlers fail" ||
    kind === "commits unknown" ||
    kind === "store weather" ||
    kind === "connection lost" ||
    ("role" in fault && fault.role === "consumer");
  const effectsInOrder = order === "key" && plan.consumers === 1 && !plan.faults.some(disturbs);
  return {
    boxes: [
      {
        box,
        order,
        strictKeyOrder: plan.strictKeyOrder,
        keep: mode === "keep",
        holdParked: onPark === "hold",
        consumers: [
          { consumer: "billing", effectsInOrder, wants: isOf("order.placed") },
          { consumer: "audit", effectsInOrder, wants: isOf("order.handled") },
        ],
      },
    ],
  };
}

function isOf(type: string) {
  return ({ digest }: { readonly digest: string }) => digest.includes(` ${type}`);
}
