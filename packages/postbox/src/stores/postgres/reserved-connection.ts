import type { Box, Executor } from "../../store.js";
import type { OpenConnection, OwnConnection } from "./own-connection.js";
import type { StatementRunner } from "./run-statement.js";

interface Member {
  /** The same box, on a connection of its own. */
  readonly box: Box;
  readonly limitMs: number;
  /** Out of here while it is used, so that no two statements ever share a transaction. */
  idle: OwnConnection | undefined;
}

/**
 * A box whose members renew, and leave, on a connection of their own: one that waited for a free connection of the pool
 * would lose its lanes to others. The first renewal takes the pool's, since there is nothing to lose yet; from the second
 * on there is one, until the member leaves. Where the server refuses one more, the pool has to do.
 *
 * No step may take longer than a sixth of the lease: a connection that is dead and does not know it is replaced in time.
 */
export function withReservedConnections(
  name: string,
  boxOn: (execute: StatementRunner) => Box,
  onPool: StatementRunner,
  open: OpenConnection,
): Box {
  const shared = boxOn(onPool);
  const members = new Map<string, Member>();

  /** On a connection, which is kept for the next time where it worked, and closed otherwise. */
  async function runOn(connection: OwnConnection, owner: string, member: Member, ...statement: Parameters<Executor>) {
    try {
      // As in run-statement.ts. Always, here: a renewal is rare enough for two more round trips.
      await connection.query("BEGIN ISOLATION LEVEL READ COMMITTED");
      const { rows, rowCount } = await connection.query(...statement);
      await connection.query("COMMIT");
      if (members.get(owner) === member) member.idle ??= connection;
      return { rows, rowCount: rowCount ?? 0 };
    } finally {
      if (member.idle !== connection) await connection.close();
    }
  }

  async function openFor(member: Member): Promise<OwnConnection> {
    const connection = await open(`renewals of ${name}`, member.limitMs);
    void connection.broken.then(() => {
      if (member.idle === connection) member.idle = undefined;
      return connection.close();
    });
    return connection;
  }

  async function runReserved(owner: string, member: Member, ...statement: Parameters<Executor>) {
    const { idle } = member;
    member.idle = undefined;
    if (idle !== undefined) {
      // It may be dead and not know it: then a fresh one does it.
      const result = await runOn(idle, owner, member, ...statement).catch(() => undefined);
      if (result !== undefined) return result;
    }
    return runOn(await openFor(member), owner, member, ...statement);
  }

  function join(owner: string, leaseMs: number): void {
    const box = boxOn(async (text, params, signal) => {
      try {
        return await runReserved(owner, member, text, params);
      } catch {
        return onPool(text, params, signal);
      }
    });
    const member: Member = { box, limitMs: leaseMs / 6, idle: undefined };
    members.set(owner, member);
  }

  async function leave(owner: string, signal?: AbortSignal): Promise<void> {
    const member = members.get(owner);
    try {
      await (member?.box ?? shared).release(owner, undefined, signal);
    } finally {
      members.delete(owner);
      await member?.idle?.close();
    }
  }

  return {
    ...shared,
    async renew(owner, leaseMs, ...more) {
      const membership = await (members.get(owner)?.box ?? shared).renew(owner, leaseMs, ...more);
      if (!members.has(owner)) join(owner, leaseMs);
      return membership;
    },
    release: (owner, lanes, signal) =>
      lanes === undefined ? leave(owner, signal) : shared.release(owner, lanes, signal),
  };
}
