import { exponential } from "postbox";
import { memoryDatabase } from "postbox/memory";
import type { Failpoint } from "postbox/store";
import { type Chance, createChance } from "./chance.js";
import type { Weather } from "./link.js";
import { Handled, Placed } from "./orders.js";
import type { Fault, Plan } from "./plan.js";
import { Recorder } from "./recorder.js";
import { type BrokerWeather, type Poison, SimulatedBroker } from "./simulated-broker.js";
import { DatabaseFacts } from "./simulated-store.js";
import { World } from "./world.js";

const calm: Weather = { travelMs: 1, slow: 0, fails: 0, answerLost: 0, hangs: 0 };
const kindly: BrokerWeather = {
  refuses: 0,
  rejects: 0,
  drops: 0,
  waits: 0,
  unavailable: [],
  dies: 0,
  confirmLost: 0,
  confirmLate: 0,
  repeats: 0,
};

/** The box that outboxes write to. */
export const box = "outbox";

/** What all actors of one history share: time, the database, the broker, and their faults. */
export class Stage {
  readonly plan: Plan;
  readonly chance: Chance;
  readonly world: World;
  readonly recorder: Recorder;
  readonly database;
  readonly facts = new DatabaseFacts();
  readonly broker: SimulatedBroker;
  readonly backoff = exponential({ initialMs: 20, maxMs: 500 });
  readonly failpoints = new Set<Failpoint>();
  /** By message id. */
  readonly poisons = new Map<string, Poison>();

  constructor(plan: Plan, trace?: (line: string) => void) {
    this.plan = plan;
    this.chance = createChance(plan.seed ^ 0x5eed);
    this.world = new World(this.chance.fork());
    this.recorder = new Recorder(this.world, trace);
    this.database = memoryDatabase({ runtime: this.world.runtime });
    this.broker = new SimulatedBroker(this.world, {
      box,
      recorder: this.recorder,
      chance: this.chance.fork(),
      weather: () => Object.assign({}, kindly, ...this.during("broker weather").map(({ weather }) => weather)),
      poisonOf: (message) => this.poisons.get(message.id),
    });
    this.broker.bind("billing", [Placed.keyed, Placed.keyless]);
    this.broker.bind("audit", [Handled.keyed, Handled.keyless]);
  }

  /** Returns the faults of a kind that are active now. */
  during<K extends Fault["kind"]>(kind: K): Extract<Fault, { kind: K; from: number }>[] {
    const { now } = this.world;
    return this.plan.faults.filter(
      (fault): fault is Extract<Fault, { kind: K; from: number }> =>
        fault.kind === kind && "from" in fault && now >= fault.from && now < fault.to,
    );
  }

  brokerLink(): Weather {
    return Object.assign({}, calm, ...this.during("broker link").map(({ weather }) => weather));
  }

  storeWeather(): Weather {
    return Object.assign({}, calm, ...this.during("store weather").map(({ weather }) => weather));
  }
}
