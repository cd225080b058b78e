import type { AuditEntry } from "postbox/admin";
import type { CommandDefinition } from "../call.js";
import { type BoxFlags, boxOf, readWhole, withBox } from "../selection.js";
import { type Column, count, table } from "../table.js";

type Flags = BoxFlags & { readonly limit?: number; readonly before?: number };

/** Lists the changes that operators have made. */
export const audit: CommandDefinition<Flags> = {
  name: "audit",
  summary: "List what operators have changed, and why",
  flags: (command) =>
    withBox(command)
      .option("--limit <number>", "at most this many, up to 1,000; defaults to 50", readWhole)
      .option("--before <number>", "older than this entry", readWhole),
  examples: ["postbox audit", "postbox audit --consumer billing --json"],
  async run(call) {
    const { flags, terminal } = call;
    const { limit, before } = flags;
    const { admin } = (await call.database()).store;
    const page = { ...(limit !== undefined && { limit }), ...(before !== undefined && { before }) };
    const entries = await admin.audit({ ...boxOf(flags), ...page });
    if (flags.json) terminal.json(entries);
    else if (entries.length === 0) terminal.out("No changes.");
    else for (const line of table(columns, entries, terminal.columns)) terminal.out(line);
    return undefined;
  },
};

const columns: readonly Column<AuditEntry>[] = [
  { title: "NUMBER", of: ({ number }) => String(number), right: true },
  { title: "AT", of: ({ at }) => at.toISOString() },
  { title: "BOX", of: ({ box }) => box },
  { title: "ACTION", of: ({ action }) => action },
  { title: "MESSAGES", of: (entry) => count(entry.count), right: true },
  { title: "BY", of: ({ by }) => by },
  { title: "REASON", of: ({ reason = "" }) => reason },
];
