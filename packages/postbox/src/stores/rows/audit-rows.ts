import type { AuditEntry } from "../../admin.js";
import type { CheckedAudit } from "../admin-options.js";
import { dropsKeptMs } from "../dropped-entries.js";

/** A change and its actor. The audit adds the box, the time and the number of messages. */
export type AuditedChange = Pick<AuditEntry, "action" | "by" | "reason" | "selection"> & {
  readonly ids?: readonly string[];
};

type StoredEntry = Omit<AuditEntry, "at"> & { readonly at: number };

interface StoredAudit {
  readonly entries: readonly StoredEntry[];
  readonly drawn: number;
  readonly lastOf: readonly (readonly [confirm: string, last: number])[];
}

/** The audit of all boxes of a store, with consecutive numbers. */
export class AuditRows {
  #entries: StoredEntry[] = [];
  #drawn = 0;
  /** The last position of each replay, by its token. */
  readonly #lastOf = new Map<string, number>();

  add(box: string, at: number, { ids = [], ...change }: AuditedChange): void {
    if (change.action === "drop") this.#entries = this.#entries.filter((entry) => !isOldDrop(entry, box, at));
    this.#entries.push(structuredClone({ number: ++this.#drawn, at, box, ...change, count: ids.length, ids }));
  }

  /** Records the position that the change with this token has reached. */
  reached(confirm: string | undefined, last: number): void {
    if (confirm !== undefined) this.#lastOf.set(confirm, last);
  }

  lastOf(confirm: string | undefined): number {
    return this.#lastOf.get(confirm ?? "") ?? 0;
  }

  /** Newest first. */
  read({ box, limit, before = Number.POSITIVE_INFINITY }: CheckedAudit): AuditEntry[] {
    const found = this.#entries.filter((entry) => entry.box === (box ?? entry.box) && entry.number < before).reverse();
    return found.slice(0, limit).map(({ at, ...entry }) => structuredClone({ ...entry, at: new Date(at) }));
  }

  toJSON(): unknown {
    return { entries: this.#entries, drawn: this.#drawn, lastOf: [...this.#lastOf] } satisfies StoredAudit;
  }

  restore(stored: unknown): void {
    const { entries, drawn, lastOf } = stored as StoredAudit;
    this.#entries = [...entries];
    this.#drawn = drawn;
    for (const [confirm, last] of lastOf) this.#lastOf.set(confirm, last);
  }
}

function isOldDrop(entry: StoredEntry, box: string, now: number): boolean {
  return entry.action === "drop" && entry.box === box && entry.at < now - dropsKeptMs;
}
