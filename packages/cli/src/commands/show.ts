import type { StoredMessageDetails } from "postbox/admin";
import type { CommandDefinition } from "../call.js";
import { duration } from "../duration.js";
import { exitCodes } from "../exit-codes.js";
import { plain } from "../plain-text.js";
import { type BoxFlags, boxOf, withBox } from "../selection.js";
import { count } from "../table.js";

type Flags = BoxFlags & { readonly data?: boolean };

/** Shows everything that is stored about a message. */
export const show: CommandDefinition<Flags> = {
  name: "show",
  summary: "Show a message: where it is, its failures, its headers",
  args: [["<id>", "the message's id"]],
  flags: (command) => withBox(command).option("--data", "also show its data, which may be confidential"),
  examples: [
    "postbox show 0193a1c2-7d4e-7b1a-9c1f-3a5e8d7b2f10",
    "postbox show 0193a1c2-7d4e-7b1a-9c1f-3a5e8d7b2f10 --consumer billing --data",
  ],
  async run(call, id = "") {
    const { flags, terminal } = call;
    const { admin } = (await call.database()).store;
    const found = await admin.get(id, boxOf(flags));
    if (flags.json) terminal.json(found.map((details) => recordOf(details, flags.data === true)));
    else if (found.length === 0)
      terminal.note(`There is no message ${plain(id)} in ${boxOf(flags).box ?? "the outbox"}.`);
    else for (const details of found) for (const line of linesOf(details, flags.data === true)) terminal.out(line);
    return found.length === 0 ? exitCodes.notFound : exitCodes.done;
  },
};

/** For JSON: without the data unless it is asked for; bytes that are no text are in base64. */
function recordOf({ message, ...details }: StoredMessageDetails, withData: boolean) {
  const { data, ...envelope } = message;
  return { ...details, message: withData ? { ...envelope, ...dataOf(data) } : envelope };
}

function dataOf(data: Uint8Array): { readonly data: string } | { readonly data_base64: string } {
  try {
    return { data: new TextDecoder("utf-8", { fatal: true }).decode(data) };
  } catch {
    return { data_base64: Buffer.from(data).toString("base64") };
  }
}

function linesOf(details: StoredMessageDetails, withData: boolean): string[] {
  const { message, failures, status, unreadable } = details;
  const fields: readonly (readonly [string, string | undefined])[] = [
    ["id", details.id],
    ["status", statusOf(details)],
    ["type", message.type],
    ["topic", message.topic],
    ["key", message.key],
    ["source", message.source],
    ["time", message.time],
    ["content type", message.datacontenttype],
    ["size", `${count(details.bytes)} bytes`],
    ["position", `${count(details.position)}, lane ${details.lane}`],
    ["appended", at(details.createdAt)],
    ["attempts", String(details.attempts)],
    ["last error", details.lastError],
    ["due", status === "waiting" || status === "scheduled" ? dueOf(details) : undefined],
    ["schedule key", details.scheduleKey],
    ["published", details.publishedAt && at(details.publishedAt)],
    ["unreadable", unreadable],
    ...Object.entries(message.extensions).map(([name, value]) => [name, String(value)] as const),
    ...Object.entries(message.headers).map(([name, value]) => [`header ${name}`, value] as const),
  ];
  const shown = fields.filter((field): field is readonly [string, string] => field[1] !== undefined);
  const width = Math.max(...shown.map(([name]) => plain(name).length));
  const lines = shown.map(([name, value]) => `${plain(name).padEnd(width)}  ${plain(value)}`);
  if (failures.length > 0) lines.push("failures");
  for (const { attempt, at: when, error } of failures)
    lines.push(`  ${attempt}. ${when.toISOString()}  ${plain(error)}`);
  if (withData) lines.push("data", `  ${plain(Object.values(dataOf(message.data))[0] as string)}`);
  return [...lines, ""];
}

function statusOf({ status, attempts }: StoredMessageDetails): string {
  if (status === "pending" && attempts > 0) return `pending, after ${attempts} failed attempts`;
  return status;
}

function dueOf({ dueAt }: StoredMessageDetails): string {
  return dueAt === undefined ? "when its key is released" : at(dueAt);
}

function at(time: Date): string {
  const ms = Date.now() - time.getTime();
  return `${time.toISOString()} (${ms >= 0 ? `${duration(ms)} ago` : `in ${duration(-ms)}`})`;
}
