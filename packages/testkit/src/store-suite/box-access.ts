import type { Message } from "postbox";
import {
  type Box,
  type Lane,
  laneCount,
  type Row,
  type Settled,
  type Settlement,
  type SettleOptions,
  type TakenLane,
} from "postbox/store";
import type { StoreHarness } from "./store-harness.js";

/** The box of facts that need only one. */
export const outbox = "outbox";

/** A lease that outlasts every fact that does not call `advance`. */
export const leaseMs = 60_000;

/** Commits messages to the outbox in a transaction of their own. */
export async function commit<Tx>({ store }: StoreHarness<Tx>, ...messages: readonly Message[]): Promise<void> {
  await store.transaction((tx) => store.append(tx, outbox, messages));
}

/**
 * Reads every lane. A store may choose the order across lanes, and of waiting rows among pending ones. So only the
 * promised order is checked: by position, among the pending and among the waiting rows of each lane.
 */
export async function readAll(box: Box, limit = 1000): Promise<readonly Row[]> {
  const every = Array.from({ length: laneCount }, (_, lane) => ({ lane, limit }));
  const rows = [...(await box.read(every)).rows, ...(await box.due(every))];
  const last = new Map<string, number>();
  for (const { lane, waiting, position } of rows) {
    const group = `lane ${lane}, ${waiting ? "wait" : "pending"}`;
    const before = last.get(group);
    if (before !== undefined && before >= position) throw new Error(`${group}: ${position} was read after ${before}`);
    last.set(group, position);
  }
  return [...rows].sort((a, b) => a.position - b.position);
}

export function ids(rows: readonly Row[]): string[] {
  return rows.map((row) => row.message.id);
}

/** The single row of this message in `rows`. */
export function rowOf(rows: readonly Row[], id: string): Row {
  const found = rows.filter((row) => row.message.id === id);
  if (found.length !== 1) throw new Error(`${found.length} rows of ${id} among [${ids(rows).join(", ")}]; expected 1`);
  return found[0] as Row;
}

/** Becomes a member and takes every available lane. */
export async function join(box: Box, owner: string, forMs = leaseMs): Promise<readonly TakenLane[]> {
  await box.renew(owner, forMs, "key");
  return box.own(owner, laneCount);
}

/** A box with an owner, as a relay uses it. */
export interface OwnedBox {
  readonly box: Box;
  readonly lanes: readonly Lane[];
  read(limit?: number): Promise<readonly Row[]>;
  /** Reads the box and settles the row of one message. */
  settle(id: string, what: What, options?: SettleOptions): Promise<Settled>;
}

/** A settlement without its row. */
export type What = Settlement extends infer One ? (One extends Settlement ? Omit<One, "row"> : never) : never;

export async function ownBox<Tx>({ store }: StoreHarness<Tx>, owner = "relay-1"): Promise<OwnedBox> {
  const box = store.box(outbox);
  const lanes = await join(box, owner);
  return {
    box,
    lanes,
    read: (limit) => readAll(box, limit),
    settle: async (id, what, options) =>
      box.settle(lanes, [{ row: rowOf(await readAll(box), id), ...what } as Settlement], options),
  };
}
