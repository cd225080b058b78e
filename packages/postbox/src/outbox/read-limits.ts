import type { Lane, Row } from "../store.js";

/** How many rows to read from each lane: few from most, more from those that keep coming back full. */
export interface ReadLimits {
  next(): readonly { readonly lane: number; readonly limit: number }[];
  /** Adapts to what the last read gave. */
  learn(rows: readonly Row[]): void;
}

export function createReadLimits(lanes: readonly Lane[], batchSize: number): ReadLimits {
  const smallest = Math.max(1, Math.ceil(batchSize / lanes.length));
  const limits = new Map(lanes.map(({ lane }) => [lane, smallest]));
  return {
    next: () => [...limits].map(([lane, limit]) => ({ lane, limit })),
    learn(rows) {
      const counts = new Map<number, number>();
      for (const { lane } of rows) counts.set(lane, (counts.get(lane) ?? 0) + 1);
      for (const [lane, limit] of limits) {
        const full = (counts.get(lane) ?? 0) >= limit;
        limits.set(lane, full ? Math.min(limit * 2, batchSize) : smallest);
      }
    },
  };
}
