import type { AuditEntry } from "postbox/store";
import type { State } from "./state.js";

type Change = Pick<AuditEntry, "action" | "by" | "reason" | "selection"> & { readonly ids?: readonly string[] };

/** Adds an entry to the audit. */
export function addAudit({ audit }: State, box: string, { ids = [], ...change }: Change, now: number): void {
  audit.push({ number: audit.length + 1, at: now, box, ...change, ids, count: ids.length });
}
