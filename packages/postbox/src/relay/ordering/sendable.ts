import type { Row } from "../../store.js";
import { KeyQueue } from "./key-queue.js";

/** A row without a key, or the next rows of a key. */
export type Entry = Row | KeyQueue;

/** The rows that can be sent, first come, first served. Suspects are set aside, to be sent alone. */
export class Sendable {
  #ready: Entry[] = [];
  #head = 0;
  #suspects: Entry[] = [];

  get size(): number {
    return this.#ready.length - this.#head + this.#suspects.length;
  }

  get hasSuspects(): boolean {
    return this.#suspects.length > 0;
  }

  add(entry: Entry): void {
    if (entry instanceof KeyQueue) entry.listed = true;
    this.#ready.push(entry);
  }

  /** The next entry with fewer than this many crashes. Entries before it are set aside. */
  next(crashes: number): Entry | undefined {
    while (this.#head < this.#ready.length) {
      const entry = this.#ready[this.#head++] as Entry;
      if (!isSuspect(entry, crashes)) {
        if (entry instanceof KeyQueue) entry.listed = false;
        return entry;
      }
      this.#suspects.push(entry);
    }
    return undefined;
  }

  /** Removes what was taken only now and then, since each removal at the front moves all other entries. */
  tidy(): void {
    if (this.#head <= 1024 && this.#head < this.#ready.length) return;
    this.#ready.splice(0, this.#head);
    this.#head = 0;
  }

  /** Sends entries with fewer than this many crashes like all others again: they were set aside for a while only. */
  reconsider(crashes: number): void {
    if (this.#suspects.length === 0) return;
    for (const entry of this.#suspects) if (!isSuspect(entry, crashes)) this.#ready.push(entry);
    this.#suspects = this.#suspects.filter((entry) => isSuspect(entry, crashes));
  }

  /** The first row that was set aside. */
  nextSuspect(): Row {
    const entry = this.#suspects.shift() as Entry;
    if (!(entry instanceof KeyQueue)) return entry;
    entry.listed = false;
    const row = entry.rows[0] as Row;
    entry.take(1);
    return row;
  }

  /** Removes a row that was confirmed late. False if it is not here. */
  remove(row: Row): boolean {
    const place = this.#ready.indexOf(row, this.#head);
    if (place >= 0) this.#ready.splice(place, 1);
    return place >= 0;
  }

  /** Removes a key whose last suspect was confirmed late. */
  unlist(key: KeyQueue): void {
    if (!this.#suspects.includes(key)) return;
    this.#suspects = this.#suspects.filter((entry) => entry !== key);
    key.listed = false;
  }

  /** Removes all entries for which `where` returns true. */
  removeAll(where: (entry: Entry) => boolean): void {
    const stays = (entry: Entry) => {
      const goes = where(entry);
      if (goes && entry instanceof KeyQueue) entry.listed = false;
      return !goes;
    };
    this.#ready = this.#ready.slice(this.#head).filter(stays);
    this.#head = 0;
    this.#suspects = this.#suspects.filter(stays);
  }

  /** All rows without a key. */
  *rows(): Iterable<Row> {
    for (const entry of this.#ready.slice(this.#head)) if (!(entry instanceof KeyQueue)) yield entry;
    for (const entry of this.#suspects) if (!(entry instanceof KeyQueue)) yield entry;
  }
}

function isSuspect(entry: Entry, crashes: number): boolean {
  const row = entry instanceof KeyQueue ? entry.rows[0] : entry;
  return row !== undefined && row.crashes >= crashes;
}
