import type { Runtime } from "../../internal/runtime.js";
import type { ScheduleState, TickClaim } from "../../store.js";
import type { OpenTransaction } from "./memory-transaction.js";

interface StoredSchedule {
  readonly id: string;
  readonly lastTick: number;
}

/** How far each schedule has come. Every call has the lock of its name, so no transaction sees what may still roll back. */
export class MemorySchedules {
  readonly #schedules = new Map<string, StoredSchedule>();
  readonly #runtime: Runtime;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  tick(tx: OpenTransaction, name: string, now: number, claim: TickClaim | undefined): ScheduleState {
    const known = this.#schedules.get(name) ?? this.#begin(tx, name, now);
    const claimed =
      claim !== undefined && claim.after === known.lastTick && claim.tick > claim.after && claim.tick <= now;
    if (!claimed) return { ...known, now, claimed };
    const next = { ...known, lastTick: claim.tick };
    this.#schedules.set(name, next);
    tx.onRollback(() => this.#schedules.set(name, known));
    return { ...next, now, claimed };
  }

  #begin(tx: OpenTransaction, name: string, now: number): StoredSchedule {
    const id = Buffer.from(this.#runtime.randomBytes(16)).toString("hex");
    const begun = { id, lastTick: Math.floor(now) };
    this.#schedules.set(name, begun);
    tx.onRollback(() => this.#schedules.delete(name));
    return begun;
  }

  everything(): unknown {
    return [...this.#schedules];
  }
}
