import type { Box, Executor } from "../../store.js";
import type { OpenConnection, OwnConnection } from "./own-connection.js";
import type { StatementRunner } from "./run-statement.js";

interface Member {
  /** The same box, on a connection of its own. */
  readonly box: Box;
  readonly limitMs: number;
  /** Undefined while in use, so that no two statements share a transaction. */
  idle: OwnConnection | undefined;
}

/**
 * A box whose members renew and leave on their own connection. If a renewal waited for a free connection of the pool,
 * other relays could take the lanes. The first renewal uses the pool, since there are no lanes to lose. The connection
 * exists from the second renewal until the member leaves. If the server refuses another connection, the pool is used.
 *
 * No step may take longer than a sixth of the lease, so that a dead connection is replaced in time.
 */
export function withReservedConnections(
  name: string,
  boxOn: (execute: StatementRunner) => Box,
  onPool: StatementRunner,
  open: OpenConnection,
): Box {
  const shared = boxOn(onPool);
  const members = new Map<string, Member>();

  /** Runs a statement on a connection, and keeps the connection if that succeeds; closes it otherwise. */
  async function runOn(connection: OwnConnection, owner: string, member: Member, ...statement: Parameters<Executor>) {
    try {
      // As in run-statement.ts, but always: renewals are rare enough for two more round trips.
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
      // The idle connection may be dead. Then a fresh one runs the statement.
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
