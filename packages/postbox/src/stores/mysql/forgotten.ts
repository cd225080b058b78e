import type { Message } from "../../message/message.js";
import type { Arrival } from "../../store.js";
import type { MysqlAccess } from "./mysql-access.js";
import { msOf, nowSql } from "./names.js";
import type { Session } from "./own-connections.js";

/**
 * How long a consumer may go by what it has read. A purge announces which ids it forgets, and deletes them only after
 * `deleteAfterMs`: whoever stores an id until then finds it.
 */
const freshMs = 200;
export const deleteAfterMs = 500;

/** What the inbox of a consumer no longer knows. */
export interface Forgotten {
  /** Whether a message is so old that its id may have been forgotten. Ask after its id was stored. */
  isOld(box: number, message: Message, retentionMs: number): Promise<boolean>;
  /** The same for many, within a transaction of the store. */
  oldAmong(
    session: Session,
    box: number,
    arrivals: readonly Arrival[],
    retentionMs: number,
  ): Promise<readonly Arrival[]>;
}

interface Known {
  readonly until: number;
  readonly now: number;
  /** By the process's own clock. */
  readonly readAt: number;
}

export function forgottenIn(access: MysqlAccess): Forgotten {
  const { t, runtime } = access;
  const known = new Map<number, Known>();

  async function ask(session: Session, box: number): Promise<Known> {
    const readAt = runtime.monotonic();
    const { rows } = await session.run(`SELECT forgotten_until, ${nowSql} AS now FROM ${t.box} WHERE number = ?`, [
      box,
    ]);
    return { until: msOf(rows[0]?.forgotten_until), now: msOf(rows[0]?.now), readAt };
  }

  const isBefore = ({ until, now, readAt }: Known, { time }: Message, retentionMs: number) =>
    time !== undefined && Date.parse(time) < Math.max(now + runtime.monotonic() - readAt - retentionMs, until);

  return {
    async isOld(box, message, retentionMs) {
      if (message.time === undefined) return false;
      let found = known.get(box);
      if (found === undefined || runtime.monotonic() - found.readAt > freshMs) {
        found = await access.read((session) => ask(session, box));
        known.set(box, found);
      }
      return isBefore(found, message, retentionMs);
    },

    async oldAmong(session, box, arrivals, retentionMs) {
      if (arrivals.every(({ message }) => message.time === undefined)) return [];
      const found = await ask(session, box);
      return arrivals.filter(({ message }) => isBefore(found, message, retentionMs));
    },
  };
}
