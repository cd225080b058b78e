import type { Arrival, Remembered } from "../../store.js";
import { duplicateEntry, mysqlNumber } from "../../transactions/mysql-errors.js";
import { sameOrNot } from "../rows/remembered-ids.js";
import type { Forgotten } from "./forgotten.js";
import { bytesOfMessage, chunks, messageColumns, messageMarks, valuesOf } from "./mysql-rows.js";
import { nowSql, storedTime, type Tables } from "./names.js";
import type { Session } from "./own-connections.js";
import { indexed } from "./schema.js";

/** How often new ids are looked for again if a concurrent transaction stores some of them meanwhile. */
const mostTries = 20;
const nothing = new Uint8Array();

/** Remembers messages. With `isHandled`, as handled; otherwise as stored in the box. */
export function insertHandled(t: Tables, count: number, isHandled: boolean): string {
  const row = `(?, ?, ?, GREATEST(${nowSql}, COALESCE(?, 0)), ${isHandled ? nowSql : "NULL"}, ${messageMarks}, ${nowSql})`;
  return `INSERT INTO ${t.handled} (box, remembered, hash, since, handled_at, ${messageColumns}, created_at)
    VALUES ${Array.from({ length: count }, () => row).join(", ")}`;
}

/** The values of one message. Retention counts from its arrival, or from its own time if that is later. */
export function handledValues(box: number, { id, hash, message, storePayload = false }: Arrival): unknown[] {
  const [, ...values] = valuesOf(storePayload ? message : { ...message, data: nothing });
  const time = message.time === undefined ? Number.NaN : Date.parse(message.time);
  return [
    box,
    indexed(id),
    hash === undefined ? null : Buffer.from(hash),
    Number.isNaN(time) ? null : storedTime(time),
    ...values,
  ];
}

/** Stores the ids that are new, within a transaction of the store, and returns what each arrival is. */
export async function adopt(
  session: Session,
  t: Tables,
  box: number,
  arrivals: readonly Arrival[],
  forgotten: Forgotten,
  retentionMs: number,
): Promise<readonly Remembered[]> {
  const first = new Map<string, Arrival>();
  for (const arrival of arrivals) if (!first.has(arrival.id)) first.set(arrival.id, arrival);
  // In one order, so that concurrent calls with the same ids do not deadlock.
  const all = [...first.values()].sort((one, other) => Buffer.compare(indexed(one.id), indexed(other.id)));
  const found = new Map<string, Remembered>();
  for (const part of chunks(all, ({ message }) => bytesOfMessage(message))) {
    for (const [id, what] of await adoptPart(session, t, box, part)) found.set(id, what);
  }
  const fresh = all.filter(({ id }) => found.get(id) === "new");
  const old = await forgotten.oldAmong(session, box, fresh, retentionMs);
  for (const { id } of old) found.set(id, "too-old");
  if (old.length > 0) {
    await session.run(
      `DELETE FROM ${t.handled} USING ${t.handled} FORCE INDEX (PRIMARY)
      WHERE box = ? AND remembered IN (?)`,
      [box, old.map(({ id }) => indexed(id))],
    );
  }
  return arrivals.map((arrival) => {
    const one = first.get(arrival.id) as Arrival;
    const what = found.get(arrival.id) as Remembered;
    return one === arrival || what !== "new" ? what : sameOrNot(one.hash, arrival.hash);
  });
}

async function adoptPart(
  session: Session,
  t: Tables,
  box: number,
  arrivals: readonly Arrival[],
): Promise<ReadonlyMap<string, Remembered>> {
  for (let tries = 1; ; tries++) {
    const { rows } = await session.run(
      `SELECT remembered, hash FROM ${t.handled} FORCE INDEX (PRIMARY) WHERE box = ? AND remembered IN (?)`,
      [box, arrivals.map(({ id }) => indexed(id))],
    );
    const known = new Map(rows.map(({ remembered, hash }) => [(remembered as Buffer).toString("hex"), hash]));
    const hashOf = ({ id }: Arrival) => known.get(indexed(id).toString("hex")) as string | null | undefined;
    const fresh = arrivals.filter((arrival) => hashOf(arrival) === undefined);
    try {
      if (fresh.length > 0) {
        await session.run(
          insertHandled(t, fresh.length, false),
          fresh.flatMap((arrival) => handledValues(box, arrival)),
        );
      }
    } catch (error) {
      // Another transaction has stored one of them meanwhile, and has committed. Only this statement was undone.
      if (mysqlNumber(error) !== duplicateEntry || tries === mostTries) throw error;
      continue;
    }
    return new Map(
      arrivals.map((arrival) => {
        const hash = hashOf(arrival);
        return [arrival.id, hash === undefined ? "new" : sameOrNot(hash ?? undefined, arrival.hash)];
      }),
    );
  }
}
