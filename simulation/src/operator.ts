import { memoryStore } from "postbox/memory";
import type { Operation } from "./plan.js";
import { box, type Stage } from "./stage.js";

const by = { by: "operator" };

/**
 * Executes what an operator does to a box while everything else runs. It uses no link: the plan decides when it
 * happens.
 */
export async function operate({ database, recorder, world, facts }: Stage, operation: Operation): Promise<void> {
  const { admin } = memoryStore({ database });
  recorder.note("operator", `${operation.what}${"key" in operation ? ` ${operation.key}` : ""}`);

  /** Applies a change to every row that it can change, and records which rows those were. */
  async function change(what: "retried" | "discarded" | "replayed", changing: () => Promise<unknown>): Promise<void> {
    const [last] = await admin.audit({ limit: 1 });
    await changing();
    const entries = await admin.audit({ limit: 1000 });
    for (const { ids } of entries.filter(({ number }) => number > (last?.number ?? 0)).reverse()) {
      for (const id of ids) recorder.record({ what, box, id });
      recorder.meet(`an operator has ${what} something`);
    }
  }

  switch (operation.what) {
    case "retry": {
      const { confirm } = await admin.dryRun("retry", {});
      facts.of(box).held.clear();
      return change("retried", () => admin.retry({}, { ...by, confirm }));
    }
    case "discard": {
      const selection = { status: operation.status };
      const { confirm } = await admin.dryRun("discard", selection);
      if (operation.status === "parked") facts.of(box).held.clear();
      return change("discarded", () => admin.discard(selection, { ...by, confirm }));
    }
    case "replay": {
      const { confirm } = await admin.dryRun("replay", {});
      return change("replayed", () => admin.replay({}, { ...by, confirm, perSecond: 1e9 }));
    }
    case "release":
      if (!(await admin.release(operation.key, by))) return;
      facts.of(box).held.delete(operation.key);
      recorder.record({ what: "released", box, key: operation.key });
      recorder.meet("an operator has released a key");
      return;
    case "pause":
      await admin.pause(by);
      recorder.meet("a box was paused");
      world.at(operation.ms, () => void admin.resume(by));
  }
}
