import type { AuditEntry } from "../../admin.js";
import { dropsKeptMs } from "../dropped-entries.js";

type Entry = Omit<AuditEntry, "number" | "at" | "box">;
type Kept = Omit<AuditEntry, "at"> & { readonly at: number };

/** What was changed in all boxes of a database, numbered through. */
export class MemoryAudit {
  #entries: Kept[] = [];
  #number = 0;
  /** Up to which position the change with a token was made. */
  readonly #lastOf = new Map<string, number>();

  write(box: string, at: number, entry: Entry, confirm?: string, last = 0): void {
    if (entry.action === "drop") this.#entries = this.#entries.filter((kept) => !isOldDrop(kept, box, at));
    this.#entries.push({ number: ++this.#number, at, box, ...structuredClone(entry) });
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

function isOldDrop(entry: Kept, box: string, now: number): boolean {
  return entry.action === "drop" && entry.box === box && entry.at < now - dropsKeptMs;
}
