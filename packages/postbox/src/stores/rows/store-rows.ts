import { ConfigError } from "../../errors.js";
import { type Runtime, runtimeWith } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import {
  type Arrival,
  type Aside,
  inboxOf,
  type Remembered,
  type RememberOptions,
  type Row,
  type ScheduleState,
  type TickClaim,
} from "../../store.js";
import { consumerOf, requireBox } from "../box-names.js";
import { AuditRows } from "./audit-rows.js";
import { BoxRows, type StoredBox } from "./box-rows.js";

/** Options of `StoreRows`. */
export interface StoreRowsOptions {
  /** Its clock, and the source of its ids. Defaults to the system's. */
  readonly runtime?: Runtime;
  /**
   * Whether a message gets its position when it is placed, so that a lower one may appear later. Otherwise it gets it
   * at commit. Defaults to false.
   */
  readonly lateCommits?: boolean;
  /** Whether an open transaction replaces or cancels this scheduled message. Defaults to never. */
  readonly isScheduleLocked?: (box: string, message: Message) => boolean;
}

interface StoredSchedule {
  readonly id: string;
  readonly lastTick: number;
}

interface StoredStore {
  readonly boxes: readonly (readonly [name: string, box: BoxRows | StoredBox])[];
  readonly schedules: readonly (readonly [name: string, schedule: StoredSchedule])[];
  readonly audit: unknown;
}

/**
 * All data of a store, in memory: boxes, inboxes, schedules and audit. Each verb is one synchronous step with the
 * contract of the verb of `Store`, `Box` or `Inbox` of the same name. The store implements transactions: one that runs
 * them serially gives each a copy, and keeps the copy if it commits.
 */
export class StoreRows {
  readonly audit = new AuditRows();
  readonly #options: StoreRowsOptions;
  readonly #runtime: Runtime;
  /** A stored box is restored on its first use. */
  readonly #boxes = new Map<string, BoxRows | StoredBox>();
  readonly #schedules = new Map<string, StoredSchedule>();

  /**
   * Creates empty rows. With `stored`, restores rows that were written with `JSON.stringify` and read with
   * `JSON.parse`.
   */
  constructor(options: StoreRowsOptions = {}, stored?: unknown) {
    this.#options = options;
    this.#runtime = options.runtime ?? runtimeWith();
    if (stored === undefined) this.box("outbox");
    else this.#restore(stored as StoredStore);
  }

  /** Returns a box and creates it if it was never used. */
  box(name: string): BoxRows {
    const box = this.look(name);
    this.#boxes.set(name, box);
    return box;
  }

  /** Returns a box for reading. A box that was never used is empty and stays unused. */
  look(name: string): BoxRows {
    const found = this.#boxes.get(name);
    if (found instanceof BoxRows) return found;
    const box = this.#newBox(name);
    if (found === undefined) return box;
    box.restore(found);
    this.#boxes.set(name, box);
    return box;
  }

  /** Returns the box that an operator names. Throws if it was never used. */
  used(name: string): BoxRows {
    requireBox(name);
    if (this.#boxes.has(name)) return this.box(name);
    const names = this.boxNames().join(", ");
    const text = `there is no box '${name}', since no such consumer has run; the boxes are ${names}`;
    throw new ConfigError("option-invalid", text, { path: "box" });
  }

  boxNames(): readonly string[] {
    return [...this.#boxes.keys()];
  }

  #newBox(name: string): BoxRows {
    const { lateCommits = false, isScheduleLocked } = this.#options;
    return new BoxRows({
      now: () => this.now(),
      lateCommits,
      isInbox: consumerOf(name) !== undefined,
      isScheduleLocked: (message) => isScheduleLocked?.(name, message) ?? false,
      audit: (change) => this.audit.add(name, this.now(), change),
    });
  }

  /** The time of its clock. */
  now(): number {
    return this.#runtime.now();
  }

  append(box: string, messages: readonly Message[]): void {
    this.box(box).append(messages);
  }

  cancel(box: string, type: string, scheduleKey: string): boolean {
    return this.look(box).cancel({ type, scheduleKey });
  }

  tick(name: string, claim?: TickClaim): ScheduleState {
    const now = this.now();
    const known = this.#schedules.get(name) ?? { id: this.#newId(), lastTick: Math.floor(now) };
    const claimed =
      claim !== undefined && claim.after === known.lastTick && claim.tick > claim.after && claim.tick <= now;
    const moved = claimed ? { ...known, lastTick: claim.tick } : known;
    this.#schedules.set(name, moved);
    return { ...moved, now, claimed };
  }

  /** Call it before a tick. The returned function undoes that tick. */
  untick(name: string): () => void {
    const known = this.#schedules.get(name);
    return () => void (known === undefined ? this.#schedules.delete(name) : this.#schedules.set(name, known));
  }

  #newId(): string {
    return Buffer.from(this.#runtime.randomBytes(16)).toString("hex");
  }

  remember(arrival: Arrival, options: Pick<RememberOptions, "retentionMs">): Remembered {
    const found = this.#takeOver(arrival, options);
    if (found === "new") this.box(inboxOf(arrival.consumer)).remembered.handled(arrival.id, this.now());
    return found;
  }

  keep(arrivals: readonly Arrival[], options: Pick<RememberOptions, "retentionMs">): readonly Remembered[] {
    return arrivals.map((arrival) => {
      const found = this.#takeOver(arrival, options);
      if (found === "new") this.append(inboxOf(arrival.consumer), [arrival.message]);
      return found;
    });
  }

  setAside(arrival: Arrival, aside: Aside, options: Pick<RememberOptions, "retentionMs">): Remembered {
    const found = this.#takeOver(arrival, options);
    const anyway = aside.to === "parked" && aside.anyway === true;
    if (found === "new" || anyway) this.box(inboxOf(arrival.consumer)).setAside(arrival.message, aside);
    return found;
  }

  handled({ consumer, id }: Arrival, row: Row, epoch: number): boolean {
    const box = this.look(inboxOf(consumer));
    if (!box.has(row, epoch)) return false;
    box.finish(row);
    box.remembered.handled(id, this.now());
    return true;
  }

  #takeOver(arrival: Arrival, { retentionMs }: Pick<RememberOptions, "retentionMs">): Remembered {
    const { remembered } = this.box(inboxOf(arrival.consumer));
    const found = remembered.find(arrival, retentionMs, this.now());
    if (found === "new") remembered.add(arrival, this.now());
    return found;
  }

  toJSON(): unknown {
    return {
      boxes: [...this.#boxes],
      schedules: [...this.#schedules],
      audit: this.audit.toJSON(),
    } satisfies StoredStore;
  }

  #restore({ boxes, schedules, audit }: StoredStore): void {
    for (const [name, box] of boxes) this.#boxes.set(name, box);
    for (const [name, schedule] of schedules) this.#schedules.set(name, schedule);
    this.audit.restore(audit);
  }
}
