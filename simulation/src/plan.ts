import type { Order } from "postbox";
import { type Failpoint, failpoints } from "postbox/store";
import { type Chance, createChance } from "./chance.js";
import type { Weather } from "./link.js";
import type { BrokerWeather, Poison } from "./simulated-broker.js";

/**
 * Everything that a seed decides in advance. Latencies and similar values are drawn during the run, from the same seed.
 */
export interface Plan {
  readonly seed: number;
  readonly relay: RelayPlan;
  readonly relays: number;
  readonly consumers: number;
  /** Whether handlers publish messages that a second consumer handles. */
  readonly secondHop: boolean;
  readonly strictKeyOrder: boolean;
  readonly hint: boolean;
  readonly keepsOrder: boolean;
  /** Whether consumers receive straight from the outbox, without relays and a broker. */
  readonly direct: boolean;
  /** Whether consumers store messages before they handle them. Defaults to false. */
  readonly durable?: boolean;
  /** How long consumers remember handled messages. Defaults to longer than any history. */
  readonly retentionMs?: number;
  readonly handler: HandlerPlan;
  readonly transactions: readonly PlannedTransaction[];
  readonly faults: readonly Fault[];
  /** What an operator does during the run. */
  readonly operations: readonly Operation[];
  /** When the last fault has ended. */
  readonly healsAt: number;
}

interface RelayPlan {
  readonly order: Order;
  readonly onSent: "delete" | "keep";
  readonly onPark: "continue" | "hold";
  readonly batchSize: number;
  readonly maxInFlight: number;
  /** Defaults to more bytes than a plan publishes. */
  readonly maxInFlightBytes?: number;
  readonly maxAttempts: number;
  readonly leaseMs: number;
  readonly pollIntervalMs: number;
}

interface HandlerPlan {
  readonly ms: number;
  readonly concurrency: number;
}

/** A transaction with one publish call per message, each with its own key or without one. */
export interface PlannedTransaction {
  readonly name: string;
  readonly at: number;
  readonly producer: number;
  readonly calls: readonly (readonly (string | null)[])[];
  /** The pause between two calls, and before COMMIT. */
  readonly thinkMs: number;
  readonly rollsBack: boolean;
  /** The delay of its messages without a key. Defaults to none. */
  readonly delayMs?: number;
  /** What its first message does to the process that sends it. */
  readonly poison?: Poison;
}

const roles = ["producer", "relay", "consumer"] as const;
export type Role = (typeof roles)[number];

interface Aimed {
  readonly role: Role;
  readonly index: number;
}

/** A failure of a process, a connection or a server. */
export type Fault =
  | ({ readonly kind: "crash" | "restart"; readonly at: number } & Aimed)
  | ({ readonly kind: "death"; readonly failpoint: Failpoint; readonly hit: number } & Aimed)
  | ({ readonly kind: "pause" | "store cut off" | "broker cut off"; readonly at: number; readonly ms: number } & Aimed)
  | ({ readonly kind: "broker half open" | "host clock jumps"; readonly at: number; readonly ms: number } & Aimed)
  | { readonly kind: "connection lost"; readonly at: number; readonly index: number }
  | { readonly kind: "clock jumps"; readonly at: number; readonly ms: number }
  | ({ readonly kind: "store weather" } & Spell & { readonly weather: Partial<Weather> })
  | ({ readonly kind: "broker link" } & Spell & { readonly weather: Partial<Weather> })
  | ({ readonly kind: "commits unknown" } & Spell & { readonly share: number })
  | ({ readonly kind: "broker weather" } & Spell & { readonly weather: Partial<BrokerWeather> })
  | ({ readonly kind: "handlers fail" } & Spell & { readonly share: number; readonly forGood: boolean });

/** An action of an operator. */
export type Operation = { readonly at: number } & (
  | { readonly what: "retry" | "replay" }
  | { readonly what: "discard"; readonly status: "parked" | "waiting" | "pending" | "scheduled" }
  | { readonly what: "release"; readonly key: string }
  | { readonly what: "pause"; readonly ms: number }
);

/** A span of time. */
interface Spell {
  readonly from: number;
  readonly to: number;
}

const troubleMs = 4_000;

/**
 * Makes the plan of a seed. Each plan draws which kinds of faults it has: with a little of every kind, one kind would
 * hide the effects of another.
 */
export function planOf(seed: number): Plan {
  const chance = createChance(seed);
  const plan = chance.is(0.2) ? crowd(seed, chance) : anything(seed, chance);
  const whole = operated(plan, createChance(seed ^ 0x0be7a7e));
  const inboxes = createChance(seed ^ 0xd0ab1e);
  const durable = !whole.direct && inboxes.is(0.3);
  const kept = { ...whole, durable, ...(inboxes.is(0.15) && { retentionMs: inboxes.pick([1_000, 4_000]) }) };
  const trouble = leaderless(unrouted(kept, createChance(seed ^ 0xd20b5)), createChance(seed ^ 0x1eade2));
  return narrowed(trouble, createChance(seed ^ 0x0b17e5));
}

/** In some plans one or both partitions are unavailable for a while. */
function leaderless(plan: Plan, chance: Chance): Plan {
  if (plan.faults.length === 0 || plan.direct || !chance.is(0.15)) return plan;
  const spell = (partition: number): Fault => {
    const from = chance.between(0, troubleMs / 2);
    const weather = { unavailable: [`partition ${partition}`] };
    return { kind: "broker weather", from, to: from + chance.between(0, troubleMs / 2), weather };
  };
  const faults = chance.is(0.3) ? [spell(0), spell(1)] : [spell(chance.count(0, 1))];
  return { ...plan, faults: [...plan.faults, ...faults] };
}

/** In some plans no queue takes certain messages for a while: their sender drops them or waits. */
function unrouted(plan: Plan, chance: Chance): Plan {
  if (plan.faults.length === 0 || plan.direct || !chance.is(0.15)) return plan;
  const from = chance.between(0, troubleMs / 2);
  const share = chance.pick([0.05, 0.3, 0.9]);
  const weather = chance.is(0.5) ? { drops: share } : { waits: share };
  const to = from + chance.between(0, troubleMs / 2);
  return { ...plan, faults: [...plan.faults, { kind: "broker weather", from, to, weather }] };
}

/** Some plans have small byte limits, some a broker that confirms late. */
function narrowed(plan: Plan, chance: Chance): Plan {
  const relay = chance.is(0.2) ? { ...plan.relay, maxInFlightBytes: chance.pick([1, 1_200, 4_000]) } : plan.relay;
  const isLate = plan.faults.length > 0 && !plan.direct && chance.is(0.2);
  const from = chance.between(0, troubleMs / 2);
  const late: Fault = {
    kind: "broker weather",
    from,
    to: from + chance.between(0, troubleMs / 2),
    weather: { confirmLate: chance.pick([0.1, 0.5, 1]) },
  };
  return healing({ ...plan, relay, faults: isLate ? [...plan.faults, late] : plan.faults });
}

/** Some plans have an operator and some have schedules, independent of their faults. */
function operated(plan: Plan, chance: Chance): Plan {
  // In total order a scheduled message takes its place when it is due, and the history cannot see that place.
  const delays = plan.relay.order !== "total" && chance.is(0.2);
  const transactions = delays
    ? plan.transactions.map((one) => (chance.is(0.5) ? { ...one, delayMs: chance.between(0, 3_000) } : one))
    : plan.transactions;
  const keys = [...new Set(plan.transactions.flatMap(({ calls }) => calls.flat()))].filter((key) => key !== null);
  const [first] = keys;
  const at = () => chance.between(0, 1.5 * troubleMs);
  const anything = (): Operation => {
    const what = chance.pick(["retry", "retry", "replay", "discard", "release", "pause"] as const);
    if (what === "discard")
      return { what, at: at(), status: chance.pick(["parked", "parked", "waiting", "pending", "scheduled"]) };
    if (what === "pause") return { what, at: at(), ms: chance.between(0, 2_000) };
    if (what !== "release") return { what, at: at() };
    return first === undefined ? { what: "retry", at: at() } : { what, at: at(), key: chance.pick([first, ...keys]) };
  };
  // If a parked message holds its key, only an operator can release the key.
  const holds = plan.relay.onPark === "hold";
  const operations = chance.is(holds ? 0.8 : 0.3) ? Array.from({ length: chance.count(1, 6) }, anything) : [];
  const rejecting: Fault = { kind: "broker weather", from: 0, to: troubleMs / 2, weather: { rejects: 0.15 } };
  const faults = [...plan.faults, ...(holds && chance.is(0.5) ? [rejecting] : []), ...moreFaults(plan, chance)];
  const whole = { ...plan, transactions, faults, operations };
  return healing(chance.is(0.15) ? directly(whole) : whole);
}

function moreFaults({ relays, relay: { leaseMs }, faults }: Plan, chance: Chance): Fault[] {
  // A plan without faults has no operator either.
  if (faults.length === 0) return [];
  const relay = () => ({ role: "relay" as const, index: chance.count(0, relays - 1) });
  const at = () => chance.between(0, troubleMs);
  const some = (probability: number) => Array.from({ length: chance.is(probability) ? chance.count(1, 2) : 0 });
  return [
    ...some(0.12).map(() => ({
      kind: "broker half open" as const,
      at: at(),
      ms: leaseMs * chance.between(0.1, 2),
      ...relay(),
    })),
    ...some(0.1).map(() => ({
      kind: "host clock jumps" as const,
      at: at(),
      ms: chance.between(-5, 5) * leaseMs,
      ...relay(),
    })),
    ...some(0.12).map(() => {
      const from = chance.between(0, troubleMs / 2);
      const weather = chance.is(0.5) ? { travelMs: chance.pick([20, 100]) } : { slow: chance.pick([0.05, 0.2]) };
      return { kind: "broker link" as const, from, to: from + chance.between(0, troubleMs / 2), weather };
    }),
  ];
}

/** Applies the faults of relays to consumers that receive from the outbox. */
function directly(plan: Plan): Plan {
  const faults = plan.faults.map(
    (fault): Fault =>
      "role" in fault && fault.role === "relay"
        ? { ...fault, role: "consumer", index: fault.index % plan.consumers }
        : fault,
  );
  return { ...plan, faults, relays: 0, secondHop: false, direct: true };
}

/** A plan with a little of everything. */
function anything(seed: number, chance: Chance): Plan {
  const relays = chance.pick([1, 2, 2, 3]);
  const consumers = chance.pick([1, 1, 2]);
  const producers = chance.count(1, 3);
  const relay = relayPlan(chance);
  const plan = {
    seed,
    relay,
    relays,
    consumers,
    secondHop: chance.is(0.3),
    strictKeyOrder: chance.is(0.2),
    hint: chance.is(0.3),
    keepsOrder: chance.is(0.6),
    direct: false,
    handler: { ms: chance.pick([0, 1, 20]), concurrency: chance.pick([1, 3, 10]) },
    transactions: transactions(chance, producers),
    faults: faults(chance, { producer: producers, relay: relays, consumer: consumers }, relay),
    operations: [],
  };
  return healing(plan);
}

/**
 * Many messages for few keys in a short time, while relays lose their lanes and the broker refuses messages: the
 * hardest case for order.
 */
function crowd(seed: number, chance: Chance): Plan {
  const plan = anything(seed, chance);
  const keys = chance.pick<[string, ...string[]]>([["k0"], ["k0", "k1"], ["k0", "k1", "k2", "k3"]]);
  const leaseMs = 500;
  const spanMs = 600;
  const moments = (most: number) => Array.from({ length: chance.count(1, most) }, () => chance.between(0, 2 * spanMs));
  const relays = chance.pick([2, 3]);
  return healing({
    ...plan,
    relays,
    relay: {
      ...plan.relay,
      order: "key",
      leaseMs,
      batchSize: chance.pick([1, 3]),
      maxInFlight: chance.pick([1, 2, 5]),
      pollIntervalMs: chance.pick([20, 100]),
    },
    transactions: Array.from({ length: chance.count(15, 40) }, (_, index) => ({
      name: `${index}`,
      at: chance.between(0, spanMs),
      producer: chance.count(0, 2),
      calls: [Array.from({ length: chance.pick([1, 2, 4]) }, () => chance.pick(keys))],
      thinkMs: chance.is(0.2) ? chance.between(0, 300) : 0,
      rollsBack: false,
    })),
    faults: [
      ...moments(4).map((at) => ({
        kind: chance.pick<"pause" | "store cut off">(["pause", "pause", "store cut off"]),
        at,
        ms: chance.between(0.8, 2.5) * leaseMs,
        role: "relay" as const,
        index: chance.count(0, relays - 1),
      })),
      ...moments(2).map((from) => ({
        kind: "broker weather" as const,
        from,
        to: from + 1_000,
        weather: { refuses: chance.pick([0.1, 0.3]), ...(chance.is(0.3) ? { confirmLost: 0.05 } : {}) },
      })),
    ],
  });
}

function healing(plan: Omit<Plan, "healsAt">): Plan {
  return { ...plan, healsAt: Math.max(0, ...[...plan.transactions, ...plan.faults, ...plan.operations].map(endOf)) };
}

function endOf(happening: PlannedTransaction | Fault | Operation): number {
  if ("to" in happening) return happening.to;
  if (!("at" in happening)) return 0;
  if ("delayMs" in happening) return happening.at + (happening.delayMs ?? 0);
  return happening.at + ("ms" in happening ? Math.max(0, happening.ms) : 0);
}

function relayPlan(chance: Chance): RelayPlan {
  const order = chance.pick<Order>(["key", "key", "key", "key", "total", "none"]);
  const leaseMs = chance.pick([500, 1_000, 2_500]);
  return {
    order,
    onSent: chance.is(0.3) ? "keep" : "delete",
    onPark: order === "key" && chance.is(0.25) ? "hold" : "continue",
    batchSize: chance.pick([1, 2, 5, 20]),
    maxInFlight: chance.pick([1, 4, 10, 50]),
    maxAttempts: chance.pick([2, 5, 100]),
    leaseMs,
    pollIntervalMs: chance.pick([20, 100, leaseMs / 4]),
  };
}

function transactions(chance: Chance, producers: number): PlannedTransaction[] {
  const keys = Array.from({ length: chance.pick([1, 2, 3, 8]) }, (_, index) => `k${index}`) as [string, ...string[]];
  const keyless = chance.pick([0, 0.2]);
  const rollsBack = chance.pick([0, 0.2]);
  // Some seeds have long transactions, so that later ones commit first.
  const longest = chance.pick([5, 50, 1_500]);
  const poisonous = chance.is(0.15) ? 0.1 : 0;
  // Some seeds publish everything at once, some spread it out.
  const span = chance.pick([100, 1_000, troubleMs]);
  return Array.from({ length: chance.count(4, 20) }, (_, index) => {
    const calls = Array.from({ length: chance.pick([1, 1, 2]) }, () =>
      Array.from({ length: chance.pick([1, 1, 2, 4]) }, () => (chance.is(keyless) ? null : chance.pick(keys))),
    );
    return {
      name: `${index}`,
      at: chance.between(0, span),
      producer: chance.count(0, producers - 1),
      calls,
      thinkMs: chance.is(0.3) ? chance.between(0, longest) : 0,
      rollsBack: chance.is(rollsBack),
      ...(chance.is(poisonous) ? { poison: chance.pick<Poison>(["kills the process", "kills the connection"]) } : {}),
    };
  });
}

function faults(chance: Chance, counts: Readonly<Record<Role, number>>, { leaseMs }: RelayPlan): Fault[] {
  if (chance.is(0.1)) return [];
  const some = (probability: number) => (chance.is(probability) ? chance.count(1, 3) : 0);
  const many = <F>(count: number, make: () => F): F[] => Array.from({ length: count }, make);
  const aim = (...among: [Role, ...Role[]]): Aimed => {
    const role = chance.pick(among);
    return { role, index: chance.count(0, counts[role] - 1) };
  };
  const at = () => chance.between(0, troubleMs);
  const spell = (): Spell => {
    const from = chance.between(0, troubleMs / 2);
    return { from, to: chance.between(from, troubleMs) };
  };
  const long = () => chance.pick([50, leaseMs, 2 * leaseMs]) * chance.between(0.5, 1.5);
  const share = () => chance.pick([0.02, 0.1, 0.3]);
  const ofRole = { producer: "outbox.", relay: "relay.", consumer: "" } as const;
  const died = (role: Role) =>
    failpoints.filter((name) =>
      role === "consumer" ? !name.startsWith("outbox.") && !name.startsWith("relay.") : name.startsWith(ofRole[role]),
    ) as [Failpoint, ...Failpoint[]];
  return [
    ...many(some(0.3), () => ({ kind: "crash" as const, at: at(), ...aim("relay", "relay", "consumer", "producer") })),
    ...many(some(0.15), () => ({ kind: "restart" as const, at: at(), ...aim("relay", "consumer") })),
    ...many(some(0.3), () => {
      const aimed = aim("relay", "relay", "consumer", "producer");
      return {
        kind: "death" as const,
        ...aimed,
        failpoint: chance.pick(died(aimed.role)),
        hit: chance.pick([1, 2, 5]),
      };
    }),
    ...many(some(0.3), () => ({ kind: "pause" as const, at: at(), ms: long(), ...aim(...roles, "relay") })),
    ...many(some(0.2), () => ({ kind: "store cut off" as const, at: at(), ms: long(), ...aim(...roles, "relay") })),
    ...many(some(0.2), () => ({ kind: "broker cut off" as const, at: at(), ms: long(), ...aim("relay") })),
    ...many(some(0.15), () => ({
      kind: "connection lost" as const,
      at: at(),
      index: chance.count(0, counts.consumer - 1),
    })),
    ...many(some(0.1), () => ({ kind: "clock jumps" as const, at: at(), ms: chance.between(-5, 5) * leaseMs })),
    ...many(some(0.15), () => ({ kind: "store weather" as const, ...spell(), weather: { fails: share() } })),
    ...many(some(0.15), () => ({ kind: "store weather" as const, ...spell(), weather: { answerLost: share() } })),
    ...many(some(0.1), () => ({ kind: "store weather" as const, ...spell(), weather: { hangs: share() / 4 } })),
    ...many(some(0.15), () => ({ kind: "store weather" as const, ...spell(), weather: { slow: share() / 2 } })),
    ...many(some(0.2), () => ({ kind: "store weather" as const, ...spell(), weather: { travelMs: 30 } })),
    ...many(some(0.15), () => ({ kind: "commits unknown" as const, ...spell(), share: share() })),
    ...many(some(0.35), () => ({ kind: "broker weather" as const, ...spell(), weather: { refuses: share() } })),
    ...many(some(0.1), () => ({ kind: "broker weather" as const, ...spell(), weather: { rejects: share() } })),
    ...many(some(0.15), () => ({ kind: "broker weather" as const, ...spell(), weather: { dies: share() } })),
    ...many(some(0.15), () => ({ kind: "broker weather" as const, ...spell(), weather: { confirmLost: share() } })),
    ...many(some(0.1), () => ({ kind: "broker weather" as const, ...spell(), weather: { repeats: share() } })),
    ...many(some(0.2), () => ({ kind: "handlers fail" as const, ...spell(), share: share(), forGood: chance.is(0.2) })),
  ];
}
