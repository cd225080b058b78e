import type { Health, HealthOptions } from "../../health.js";
import { type BoxSight, boxProblems, healthOf } from "../box-problems.js";
import { checkHealth } from "../health-options.js";
import type { MemoryBox } from "./memory-box.js";
import type { MemoryData } from "./memory-database.js";

/** `Store.health` in memory, which is always reached, needs no vacuum and has no partitions. */
export async function memoryHealth(data: MemoryData, options?: HealthOptions): Promise<Health> {
  const limits = checkHealth(options);
  const boxes = limits.box === undefined ? data.boxNames() : [limits.box];
  return healthOf(boxes.flatMap((box) => boxProblems(box, sightOf(data.existingBox(box)), limits)));
}

function sightOf(box: MemoryBox): BoxSight {
  const { now, pausedAt } = box;
  const isDue = ({ dueAt = now }: { readonly dueAt?: number }) => dueAt <= now;
  const scheduled = box.rows("scheduled").filter(isDue);
  const waiting = box.rows("waiting").filter(isDue);
  const pending = box.rows("pending");
  const unowned = box.unownedLanes();
  const unsent = [
    ...pending.map((row) => ({ row, status: "pending" as const, since: row.createdAt })),
    ...waiting.map((row) => ({ row, status: "waiting" as const, since: row.dueAt ?? now })),
  ].sort((a, b) => a.since - b.since)[0];
  const retried = box
    .rows("waiting")
    .find(({ error, dueAt }) => error !== undefined && dueAt !== Number.POSITIVE_INFINITY);
  const [late] = scheduled.sort((a, b) => (a.dueAt ?? now) - (b.dueAt ?? now));
  const heldKeys = box.keysHeldForGood();
  return {
    ...(unsent && { unsent: { ...named(unsent.row), status: unsent.status, ageMs: now - unsent.since } }),
    ...(retried?.error !== undefined && {
      retried: {
        ...named(retried),
        ageMs: now - retried.createdAt,
        attempts: retried.attempts,
        lastError: retried.error,
      },
    }),
    ...(late && { late: { ...named(late), lateMs: now - (late.dueAt ?? now) } }),
    unowned: unowned.size,
    unsentUnowned: [...pending, ...waiting, ...(late ? [late] : [])].some(({ lane }) => unowned.has(lane)),
    relays: box.living(),
    ...(pausedAt !== undefined && { pausedAt: new Date(pausedAt), pausedForMs: now - pausedAt }),
    parked: box.rows("parked").length,
    heldForGood: heldKeys.length,
    heldKeys,
  };
}

function named({ message }: { readonly message: { readonly id: string; readonly topic: string } }) {
  return { id: message.id, topic: message.topic };
}
