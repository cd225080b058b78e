import { type Command, InvalidArgumentError, Option } from "commander";
import { inboxOf } from "postbox";
import type { MessageFilter } from "postbox/admin";
import { wrongUse } from "./failure.js";

/** The flags that name a box. */
export interface BoxFlags {
  readonly box?: string;
  readonly consumer?: string;
}

/** The flags that select messages. */
export interface SelectionFlags extends BoxFlags {
  readonly id?: string[];
  readonly type?: string;
  readonly topic?: string;
  readonly key?: string;
  readonly source?: string;
  readonly correlationId?: string;
  readonly createdFrom?: Date;
  readonly createdBefore?: Date;
  readonly minAttempts?: number;
  readonly error?: string;
}

export function withBox(command: Command): Command {
  return command
    .addOption(new Option("--box <name>", "the box; defaults to outbox").conflicts("consumer"))
    .option("--consumer <name>", "the inbox of this consumer, instead of the outbox");
}

export function withSelection(command: Command): Command {
  return withBox(command)
    .option("--id <id...>", "these messages")
    .option("--type <type>", "messages of this event type")
    .option("--topic <topic>", "messages of this topic")
    .option("--key <key>", "messages with this key")
    .option("--source <source>", "messages from this source")
    .option("--correlation-id <id>", "messages with this correlation id")
    .option("--created-from <time>", "appended at or after this time, such as 2026-01-31T12:00:00Z", readTime)
    .option("--created-before <time>", "appended before this time", readTime)
    .option("--min-attempts <number>", "with at least this many failed attempts", readWhole)
    .option("--error <text>", "whose last error contains this text");
}

/** The box that the flags name; undefined for the default. */
export function boxOf({ box, consumer }: BoxFlags): { readonly box?: string } {
  if (consumer !== undefined) return { box: inboxOf(consumer) };
  return box === undefined ? {} : { box };
}

/** The filter that the flags describe. */
export function filterOf(flags: SelectionFlags): MessageFilter {
  const { id: ids, type, topic, key, source, correlationId, createdFrom, createdBefore, minAttempts, error } = flags;
  const given = { ids, type, topic, key, source, correlationId, createdFrom, createdBefore, minAttempts, error };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

/** For a change: a filter that must not be empty, unless `--all` says so. */
export function selectionOf(flags: SelectionFlags & { readonly all?: boolean }): MessageFilter {
  const filter = filterOf(flags);
  if (Object.keys(filter).length === 0 && flags.all !== true) {
    throw wrongUse("this selects nothing; give --id or another flag that selects messages, or --all");
  }
  return filter;
}

export function readTime(text: string): Date {
  const time = new Date(text);
  if (!/^\d{4}-\d\d-\d\d/.test(text) || Number.isNaN(time.getTime())) {
    throw new InvalidArgumentError("Give a time in ISO 8601: 2026-01-31, or 2026-01-31T12:00:00Z.");
  }
  return time;
}

export function readWhole(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError("Give a whole number.");
  return Number(text);
}
