import type { Arrival, Remembered } from "../../store.js";
import { copyOf, fromJson, newRow, type StoredRow, toJson, type WithData } from "./stored-row.js";

interface Memory {
  readonly message: Arrival["message"];
  readonly hash: string | undefined;
  readonly position: number;
  /** The time from which retention counts: the later of arrival and the message's own time. */
  readonly since: number;
  readonly receivedAt: number;
  readonly handledAt?: number;
}

interface StoredIds {
  readonly drawn: number;
  readonly forgottenUntil: number;
  readonly ids: readonly (readonly [id: string, memory: WithData<Memory>])[];
}

/** What a consumer has accepted, by the id under which it knows a message. */
export class RememberedIds {
  readonly #ids = new Map<string, Memory>();
  #drawn = 0;
  /** Messages older than this may have been forgotten. */
  #forgottenUntil = 0;

  /** What `add` would find. Adds nothing. */
  find({ id, hash, message }: Arrival, retentionMs: number, now: number): Remembered {
    const known = this.#ids.get(id);
    if (known !== undefined) return sameOrNot(known.hash, hash);
    return Date.parse(message.time ?? "") < Math.max(now - retentionMs, this.#forgottenUntil) ? "too-old" : "new";
  }

  add({ id, hash, message, storePayload = false }: Arrival, now: number): void {
    const time = Date.parse(message.time ?? "");
    const since = Number.isNaN(time) ? now : Math.max(time, now);
    const data = storePayload ? message.data : new Uint8Array();
    const position = ++this.#drawn;
    this.#ids.set(id, { message: copyOf({ ...message, data }), hash, position, since, receivedAt: now });
  }

  handled(id: string, now: number): void {
    const known = this.#ids.get(id);
    if (known !== undefined) this.#ids.set(id, { ...known, handledAt: now });
  }

  /** Forgets everything accepted before that time. Returns how many entries. */
  forget(before: number): number {
    this.#forgottenUntil = Math.max(before, this.#forgottenUntil);
    const old = [...this.#ids].filter(([, { since }]) => since < before);
    for (const [id] of old) this.#ids.delete(id);
    return old.length;
  }

  /** The handled messages that are still remembered. */
  handledRows(): StoredRow[] {
    return [...this.#ids.values()].flatMap(({ message, position, receivedAt, handledAt: updatedAt }) =>
      updatedAt === undefined ? [] : [{ ...newRow(message, position, receivedAt), lane: 0, attempts: 1, updatedAt }],
    );
  }

  toJSON(): unknown {
    const ids = [...this.#ids].map(([id, memory]) => [id, toJson(memory)] as const);
    return { drawn: this.#drawn, forgottenUntil: this.#forgottenUntil, ids } satisfies StoredIds;
  }

  restore(stored: unknown): void {
    const { drawn, forgottenUntil, ids } = stored as StoredIds;
    this.#drawn = drawn;
    this.#forgottenUntil = forgottenUntil;
    for (const [id, memory] of ids) this.#ids.set(id, fromJson<Memory>(memory));
  }
}

/** Whether a redelivered message is the same as the known one. */
export function sameOrNot(known: string | undefined, hash: string | undefined): "duplicate" | "differs" {
  return known !== undefined && hash !== undefined && known !== hash ? "differs" : "duplicate";
}
