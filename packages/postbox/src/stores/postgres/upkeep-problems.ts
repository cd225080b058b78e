import type { BoxSight } from "../box-problems.js";
import { counted, duration, size } from "../figures.js";
import type { CheckedLimits } from "./postgres-limits.js";
import type { OrderBlocker, UpkeepProblem, VacuumHolder } from "./postgres-problems.js";
import { statementText } from "./statement-text.js";

/** The result of `upkeepSql`. */
export interface Upkeep {
  readonly now: number;
  /** What keeps vacuum from removing rows. The holder with the oldest transaction comes first. */
  readonly holders: readonly HolderRecord[] | null;
  /** Open transactions that have written, oldest first. */
  readonly writers: readonly WriterRecord[] | null;
  readonly sequence: SequenceRecord | null;
  readonly tables: readonly TableRecord[];
  /** Without bounds: the default partition. */
  readonly partitions: readonly { readonly from: number | null; readonly to: number | null }[] | null;
  /** How long ago a row last went to the overflow. Absent if none did. */
  readonly overflowedMs?: number;
}

export interface HolderRecord {
  readonly kind: VacuumHolder["kind"];
  readonly name: string;
  readonly user: string | null;
  readonly application: string | null;
  readonly state: string | null;
  readonly query: string | null;
  readonly active: boolean | null;
  readonly ageMs: number | null;
  readonly transactions: number;
}

interface WriterRecord {
  readonly kind: OrderBlocker["kind"];
  readonly name: string;
  readonly database: string | null;
  readonly user: string | null;
  readonly application: string | null;
  readonly ageMs: number | null;
}

interface SequenceRecord {
  readonly name: string;
  readonly cache: number;
  readonly increment: number;
  readonly cycles: boolean;
}

export interface TableRecord {
  readonly part: "pending" | "wait" | "hold" | "scheduled" | "parked" | "done" | "overflow";
  readonly table: string;
  readonly bytes: number;
  /** Negative if there is no estimate yet. */
  readonly liveRows: number;
  readonly rowBytes: number;
}

/** Problems with the tables of a box. The inboxes of all consumers share theirs. */
export function tableProblems(box: string, upkeep: Upkeep, limits: CheckedLimits): UpkeepProblem[] {
  return [...sequenceAltered(upkeep), ...partitionMissing(box, upkeep, limits), ...tablesHeavy(upkeep, limits)];
}

function sequenceAltered({ sequence }: Upkeep): UpkeepProblem[] {
  if (sequence === null || (sequence.cache === 1 && sequence.increment === 1 && !sequence.cycles)) return [];
  const { name, cache, increment, cycles } = sequence;
  const text =
    `the sequence ${name} does not give positions in order (CACHE ${cache}, INCREMENT ` +
    `${increment}${cycles ? ", CYCLE" : ""}): ` +
    "sessions draw several at once or skip some, so that messages of a key are sent in another order than they " +
    "were appended in; " +
    `ALTER SEQUENCE ${name} CACHE 1 INCREMENT 1 NO CYCLE`;
  return [{ code: "sequence-altered", severity: "error", text, sequence: name, cache, increment, cycles }];
}

/** The ages of transactions are read before those of messages, at most this much earlier. */
const betweenMs = 1000;

/**
 * The transaction that a total order waits for: one that began before the oldest unsent message was appended.
 * Transactions of other databases count, because the server numbers all of them in one sequence.
 */
export function orderBlocked(
  box: string,
  { writers }: Upkeep,
  sight: BoxSight,
  { unsentAgeMs }: CheckedLimits,
): UpkeepProblem[] {
  const { unsent, relays } = sight;
  const isTotal = relays.some(({ order }) => order === "total");
  if (unsent === undefined || unsent.ageMs <= unsentAgeMs || !isTotal) return [];
  const writer = writers?.find(({ ageMs }) => ageMs === null || ageMs + betweenMs >= unsent.ageMs);
  if (writer === undefined) return [];
  const { kind, name, application, ageMs } = writer;
  const [database, user] = [writer.database ?? "", writer.user ?? ""];
  const where = `${user} in the database ${database}${ageMs === null ? "" : `, open for ${duration(ageMs)}`}`;
  const who =
    kind === "transaction"
      ? `session ${name}${application ? ` (${application})` : ""} of ${where}; commit it there, ` +
        `or end it with pg_terminate_backend(${name})`
      : `the prepared transaction ${name} of ${where}; COMMIT PREPARED or ROLLBACK PREPARED it there`;
  const text = `relays of ${box} keep a total order, and wait for a transaction of this server to end: ${who}`;
  const common = { database, user, ...(ageMs !== null && { ageMs }) };
  const blocker: OrderBlocker =
    kind === "transaction"
      ? { ...common, kind, pid: Number(name), application: application ?? "" }
      : { ...common, kind, gid: name };
  return [{ code: "order-blocked", severity: "error", text, box, blocker }];
}

/**
 * If the server reports no age, as for a slot in use or a session that the role may not see, this many transactions
 * count as a long time.
 */
const manyTransactions = 1_000_000;

export function vacuumHeldBack({ holders }: Upkeep, { transactionAgeMs }: CheckedLimits): UpkeepProblem[] {
  const holding = (holders ?? []).filter(({ kind, ageMs, active, transactions }) => {
    if (ageMs !== null) return ageMs > transactionAgeMs;
    return (kind === "replication slot" && active === false) || transactions >= manyTransactions;
  });
  const [first] = holding;
  if (first === undefined) return [];
  const { transactions } = first;
  const holder = holderFrom(first);
  const others = holding.length - 1;
  const text =
    `vacuum cannot remove what the last ${counted(transactions, "transaction")} left behind, so tables grow and ` +
    "every read gets slower: " +
    `${whoHolds(holder)}${others > 0 ? `, and ${counted(others, "other")}` : ""}`;
  return [{ code: "vacuum-held-back", severity: "warning", text, holder, transactions, others }];
}

function holderFrom({ kind, name, user, application, state, query, active, ageMs }: HolderRecord): VacuumHolder {
  const age = ageMs !== null && { ageMs };
  if (kind === "replication slot") return { kind, slot: name, active: active === true, ...age };
  if (kind === "prepared transaction") return { kind, gid: name, user: user ?? "", ageMs: ageMs ?? 0 };
  const session = { kind, pid: Number(name), user: user ?? "", application: application ?? "" };
  // If the role may not see the session, PostgreSQL reports `<insufficient privilege>` as its query: leave it out.
  if (ageMs === null && state === null) return session;
  return {
    ...session,
    ...age,
    ...(state !== null && { state }),
    ...(query !== null && { query: statementText(query) }),
  };
}

function whoHolds(holder: VacuumHolder): string {
  switch (holder.kind) {
    case "transaction": {
      const { pid, user, application, state, ageMs, query } = holder;
      const who = `a transaction of ${user || "the server"}${application && ` (${application})`}, pid ${pid}`;
      const end = `end it where it comes from, or with pg_terminate_backend(${pid})`;
      // Only a WAL sender has a state but no transaction.
      if (ageMs === undefined && state !== undefined)
        return `a long transaction on the standby of ${user}, pid ${pid}; end it there`;
      return ageMs === undefined
        ? `${who}; this role may not see its age and its statement: grant it pg_monitor; ${end}`
        : `${who}, ${state ?? "active"}, has been open for ${duration(ageMs)}, its last statement is ` +
            `${query || "unknown"}; ${end}`;
    }
    case "prepared transaction":
      return (
        `the prepared transaction ${holder.gid} of ${holder.user} has waited for its end for ` +
        `${duration(holder.ageMs)}; ` +
        "COMMIT PREPARED or ROLLBACK PREPARED it"
      );
    case "replication slot": {
      const { slot, active, ageMs } = holder;
      if (active) return `the replication slot ${slot}, whose standby runs a long transaction; end it there`;
      const since = ageMs === undefined ? "" : ` for ${duration(ageMs)}`;
      return (
        `the replication slot ${slot}, which has been unused${since}; ` +
        "start its consumer, or drop it with pg_drop_replication_slot"
      );
    }
  }
}

/**
 * A relay that found no partition looks for one again after a minute. A younger row in the overflow means that the
 * overflow is still in use.
 */
const noticedMs = 60_000;

function partitionMissing(
  box: string,
  { now, partitions, overflowedMs }: Upkeep,
  { partitionsAheadMs }: CheckedLimits,
): UpkeepProblem[] {
  if (partitions === null) return [];
  const aheadMs = coveredFrom(now, partitions) - now;
  const overflowing = overflowedMs !== undefined && overflowedMs < noticedMs;
  if (aheadMs >= partitionsAheadMs && !overflowing) return [];
  const cleaner = "let a relay with 'retentionMs' run, or call store.purge regularly, as a role that may create tables";
  const text =
    aheadMs <= 0
      ? `${box}_done has partitions, but none for the present time, so what is done goes to the overflow table, ` +
        "to be deleted row by row: " +
        `no process purges the box; ${cleaner}`
      : aheadMs < partitionsAheadMs
        ? `${box}_done has partitions for the next ${duration(aheadMs)} only, and ${duration(partitionsAheadMs)} ` +
          "is the limit: " +
          `no process purges the box; ${cleaner}`
        : `${box}_done has a partition for the present time, but what is done still goes to the overflow table: ` +
          "the partition was just created, and relays notice it within a minute; " +
          "if this persists, check the TimeZone and DateStyle of their sessions";
  return [{ code: "partition-missing", severity: "warning", text, aheadMs: Math.max(0, aheadMs), overflowing }];
}

/** Until when every moment from `now` on has a partition. */
function coveredFrom(now: number, partitions: NonNullable<Upkeep["partitions"]>): number {
  const inOrder = partitions
    .map(({ from, to }) => ({ from: from ?? Number.NEGATIVE_INFINITY, to: to ?? Number.POSITIVE_INFINITY }))
    .sort((a, b) => a.from - b.from);
  return inOrder.reduce((until, { from, to }) => (from <= until && to > until ? to : until), now);
}

/** If live rows explain less than this share of a table, the rest is dead space. */
const liveShare = 0.1;
/** The bytes of a row besides its columns: its header and its index entries. */
const rowOverhead = 100;

function tablesHeavy({ tables }: Upkeep, { tableBytes, deadSpaceBytes }: CheckedLimits): UpkeepProblem[] {
  return tables.flatMap(({ part, table, bytes, liveRows, rowBytes }): UpkeepProblem[] => {
    const explained = liveRows * (rowBytes + rowOverhead);
    const dead = part !== "done" && liveRows >= 0 && bytes > deadSpaceBytes && explained < liveShare * bytes;
    if (!dead && bytes <= tableBytes) return [];
    const rows = liveRows < 0 ? "an unknown number of rows" : `about ${counted(liveRows, "row")}`;
    const text = dead
      ? `the table ${table} takes ${size(bytes)} for ${rows}: ` +
        "the rest is dead space, left by a backlog or because vacuum was held back; " +
        `see whether vacuum-held-back is a problem, too, then VACUUM FULL ${table} while the box is paused ` +
        "(where the server has crashed lately, ANALYZE it first: the count may be wrong)"
      : `the table ${table} takes ${size(bytes)} with ${rows}, and ${size(tableBytes)} is the limit: ${whyLarge[part]}`;
    return [{ code: "table-heavy", severity: "warning", text, table, bytes, liveRows: Math.max(0, liveRows), dead }];
  });
}

const whyLarge: Readonly<Record<TableRecord["part"], string>> = {
  pending: "more is appended than sent; run more relays, or check how many messages the broker accepts per second",
  wait: 'keys are held and much waits behind them; admin.list({ status: "waiting" }) says why',
  hold: 'very many keys are held; admin.list({ status: "waiting" }) says why',
  scheduled: "much is scheduled for later; raise 'tableBytes' if that is meant to be so",
  parked:
    "parked messages stay until an operator decides; send them again with admin.retry, or remove them with " +
    "admin.discard",
  done: "what is done is kept; shorten 'retentionMs', or move it to an archive",
  overflow:
    "what is done is kept where there are no partitions; let a relay with 'retentionMs' run, or call store.purge",
};
