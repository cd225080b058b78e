import { type Command, InvalidArgumentError } from "commander";
import type { ListOptions, Status, StoredMessage } from "postbox/admin";
import type { Call, CommandDefinition } from "../call.js";
import { duration, readDuration } from "../duration.js";
import { boxOf, filterOf, readWhole, type SelectionFlags, withSelection } from "../selection.js";
import { type Column, count, table } from "../table.js";

type Flags = SelectionFlags & { readonly limit?: number; readonly after?: string };

const statuses: readonly Status[] = ["pending", "waiting", "scheduled", "parked", "done"];

function readStatuses(text: string): Status[] {
  const names = text.split(",");
  const wrong = names.find((name) => !statuses.includes(name as Status));
  if (wrong !== undefined) throw new InvalidArgumentError(`Give one or several of ${statuses.join(", ")}.`);
  return names as Status[];
}

const withPage = (command: Command) =>
  withSelection(command)
    .option("--limit <number>", "at most this many, up to 1,000; defaults to 50", readWhole)
    .option("--after <token>", "the next page; the previous one names the token");

/** Lists messages. */
export const list: CommandDefinition<Flags & { readonly status?: Status[] }> = {
  name: "list",
  summary: "List messages, the newest first",
  flags: (command) =>
    withPage(command).option("--status <statuses>", `one or several of ${statuses.join(",")}`, readStatuses),
  examples: [
    "postbox list --status pending,waiting",
    "postbox list --key order-17",
    "postbox list --json --limit 1000",
  ],
  run: (call) => listed(call, call.flags.status === undefined ? {} : { status: call.flags.status }),
};

/** Lists parked messages. */
export const parked: CommandDefinition<Flags> = {
  name: "parked",
  summary: "List messages that were set aside, with the reason",
  flags: withPage,
  examples: ["postbox parked", "postbox parked --consumer billing"],
  run: (call) => listed(call, { status: "parked" }),
};

/** Lists messages that have failed and wait for a retry. */
export const failed: CommandDefinition<Flags> = {
  name: "failed",
  summary: "List messages that have failed and will be retried",
  flags: withPage,
  examples: ["postbox failed", "postbox failed --error timeout"],
  run: (call) => listed(call, { status: ["pending", "waiting"], minAttempts: call.flags.minAttempts ?? 1 }),
};

/** Lists messages that should have been sent by now. */
export const stuck: CommandDefinition<Flags & { readonly olderThan: number }> = {
  name: "stuck",
  summary: "List messages that could have been sent for a while, and were not",
  flags: (command) =>
    withPage(command).option("--older-than <duration>", "how long they have waited", readDuration, 60_000),
  examples: ["postbox stuck", "postbox stuck --older-than 10m"],
  run: (call) =>
    listed(call, {
      status: "pending",
      createdBefore: call.flags.createdBefore ?? new Date(Date.now() - call.flags.olderThan),
    }),
};

const columns: readonly Column<StoredMessage>[] = [
  { title: "ID", of: ({ id }) => id },
  { title: "STATUS", of: ({ status }) => status },
  { title: "TYPE", of: ({ type }) => type },
  { title: "KEY", of: ({ key = "-" }) => key },
  { title: "AGE", of: ({ createdAt }) => duration(Math.max(0, Date.now() - createdAt.getTime())), right: true },
  { title: "TRIES", of: ({ attempts }) => String(attempts), right: true },
  { title: "LAST ERROR", of: ({ lastError = "" }) => lastError },
];

async function listed(call: Call<Flags>, own: ListOptions): Promise<undefined> {
  const { flags, terminal } = call;
  const { limit, after } = flags;
  const page = { ...(limit !== undefined && { limit }), ...(after !== undefined && { after }) };
  const { admin } = (await call.database()).store;
  const found = await admin.list({ ...filterOf(flags), ...own, ...boxOf(flags), ...page });
  if (flags.json) {
    terminal.json(found);
    return undefined;
  }
  if (found.messages.length === 0) terminal.out("No messages.");
  else for (const line of table(columns, found.messages, terminal.columns)) terminal.out(line);
  if (found.next !== undefined)
    terminal.note(`${count(found.messages.length)} shown; the next page: --after ${found.next}`);
  return undefined;
}
