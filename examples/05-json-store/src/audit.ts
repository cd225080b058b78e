import { type AuditEntry, dropsKeptMs } from "postbox/store";
import type { State } from "./state.js";

type Change = Pick<AuditEntry, "action" | "by" | "reason" | "selection"> & { readonly ids?: readonly string[] };

/** Adds an entry to the audit. What relays have dropped is not kept for ever. */
export function addAudit({ audit }: State, box: string, { ids = [], ...change }: Change, now: number): void {
  const number = (audit.at(-1)?.number ?? 0) + 1;
  if (change.action === "drop") {
    const kept = audit.filter(
      ({ action, at, ...entry }) => action !== "drop" || entry.box !== box || at >= now - dropsKeptMs,
    );
    audit.splice(0, Infinity, ...kept);
  }
  audit.push({ number, at: now, box, ...change, ids, count: ids.length });
}
