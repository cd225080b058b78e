import type { AuditEntry } from "../../admin.js";

type Entry = Omit<AuditEntry, "number" | "at" | "box">;

/** What was changed in all boxes of a database, numbered through. */
export class MemoryAudit {
  readonly #entries: (Omit<AuditEntry, "at"> & { readonly at: number })[] = [];
  /** Up to which position the change with a token was made. */
  readonly #lastOf = new Map<string, number>();

  write(box: string, at: number, entry: Entry, confirm?: string, last = 0): void {
    this.#entries.push({ number: this.#entries.length + 1, at, box, ...structuredClone(entry) });
    if (confirm !== undefined) this.#lastOf.set(confirm, last);
  }

  lastOf(confirm: string | undefined): number {
    return this.#lastOf.get(confirm ?? "") ?? 0;
  }

  /** The newest first. */
  read(box: string | undefined, limit: number, before = Number.POSITIVE_INFINITY): AuditEntry[] {
    const found = this.#entries.filter((entry) => entry.box === (box ?? entry.box) && entry.number < before).reverse();
    return found.slice(0, limit).map(({ at, ...entry }) => structuredClone({ ...entry, at: new Date(at) }));
  }

  everything(): readonly unknown[] {
    return this.#entries;
  }
}
