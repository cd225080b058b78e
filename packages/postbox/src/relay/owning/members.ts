import { ConfigError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import type { Member, Order } from "../../store.js";

/** A heartbeat, and when it was first seen. */
interface Heartbeat extends Pick<Member, "beat" | "leaseMs"> {
  readonly since: number;
  /** Whether its relay takes a share of the lanes. */
  readonly shares: boolean;
}

/** The other relays of a box, as of the last renewal. */
export class Members {
  readonly #runtime: Pick<Runtime, "monotonic">;
  #heartbeats = new Map<string, Heartbeat>();

  constructor(runtime: Pick<Runtime, "monotonic">) {
    this.#runtime = runtime;
  }

  saw(others: readonly Member[]): void {
    const now = this.#runtime.monotonic();
    this.#heartbeats = new Map(
      others.map((other) => {
        const { owner, beat, leaseMs } = other;
        const before = this.#heartbeats.get(owner);
        const since = before?.beat === beat ? before.since : now;
        return [owner, { beat, leaseMs, since, shares: shares(other) }];
      }),
    );
  }

  /** How many relays share the lanes, including this one. */
  get sharing(): number {
    let count = 1;
    for (const heartbeat of this.#heartbeats.values()) if (heartbeat.shares && !this.#isDead(heartbeat)) count++;
    return count;
  }

  /**
   * Members whose heartbeat has stood still for one and a half leases. They count as crashed even if their lease seems
   * to be valid, since the database's clock may have been set back.
   */
  dead(): Pick<Member, "owner" | "beat">[] {
    return [...this.#heartbeats]
      .filter(([, heartbeat]) => this.#isDead(heartbeat))
      .map(([owner, { beat }]) => ({ owner, beat }));
  }

  #isDead({ since, leaseMs }: Heartbeat): boolean {
    return this.#runtime.monotonic() - since > 1.5 * leaseMs;
  }
}

/**
 * Whether a member has renewed within the last half of its lease. If not, it has probably crashed and needs no share.
 */
function shares({ expiresInMs, leaseMs }: Member): boolean {
  return expiresInMs > leaseMs / 2;
}

/**
 * Throws if another relay runs with another order. Of two that disagree, the later one gives way: owners are numbered
 * by time.
 */
export function checkOrder(others: readonly Member[], owner: string, order: Order, box: string): void {
  const rival = others.find((other) => other.expiresInMs > 0 && other.order !== order && other.owner < owner);
  if (rival === undefined) return;
  throw new ConfigError(
    "option-invalid",
    `createRelay: another relay of the box ${box} runs with order "${rival.order}", this one with "${order}"; ` +
      "give all of them the same, and stop the others before you change it",
    { path: "order" },
  );
}
