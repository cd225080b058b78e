import { createInterface } from "node:readline";
import { Option } from "commander";
import type { OutgoingMessage, Store } from "postbox";
import type { Call, CommandDefinition } from "../call.js";
import { exitCodes } from "../exit-codes.js";
import { failureOf, wrongUse } from "../failure.js";
import { readTime } from "../selection.js";
import { count } from "../table.js";

interface Flags {
  readonly source: string;
  readonly topic?: string;
  readonly key?: string;
  readonly id?: string;
  readonly subject?: string;
  readonly header?: Record<string, string>;
  readonly deliverAt?: Date;
  readonly lines?: boolean;
}

/** A transaction takes this many lines, so that a failure leaves whole batches. */
const batchSize = 500;

/** Publishes into the outbox. */
export const publish: CommandDefinition<Flags> = {
  name: "publish",
  summary: "Put messages into the outbox",
  description:
    "Puts one message into the outbox, with JSON from the argument or from standard input. With --lines, standard " +
    "input has one message on each line, as JSON: type and data, and optionally key, topic, id, subject, source, " +
    "headers, deliverAt. Lines are committed in batches of 500.",
  args: [
    ["[type]", "the event type, such as shop.orders.v1.OrderPlaced"],
    ["[data]", "its data as JSON; without it, standard input is read"],
  ],
  flags: (command) =>
    command
      .option("--source <uri>", "the CloudEvents source", "/postbox-cli")
      .option("--topic <topic>", "defaults to the type before its last dot")
      .option("--key <key>", "messages of one key keep their order")
      .option("--id <id>", "defaults to a new UUID")
      .option("--subject <text>", "the CloudEvents subject")
      .option("--header <name=value>", "may be repeated", readHeader)
      .option("--deliver-at <time>", "not before this time", readTime)
      .addOption(
        new Option("--lines", "read one message from each line").conflicts(["id", "key", "header", "deliverAt"]),
      ),
  examples: [
    `postbox publish shop.orders.v1.OrderPlaced '{"orderId":"1"}' --key 1`,
    "postbox publish --lines < messages.ndjson",
  ],
  async run(call, type, data) {
    const { flags, terminal } = call;
    if (flags.lines) return publishLines(call);
    if (type === undefined) throw wrongUse("give the type of the message, or --lines");
    const json = data ?? (await readAll(call));
    const { topic, key, id, subject, source, header, deliverAt } = flags;
    const given = { topic, key, id, subject, source, headers: header, deliverAt: deliverAt?.toISOString() };
    const message = messageOf({ ...given, type, data: parsed(json, "the data") }, flags.source);
    const { store } = await call.database();
    const [published] = await append(store, flags.source, [message]);
    if (flags.json) terminal.json({ published: 1, id: published });
    else terminal.out(published as string);
    return exitCodes.done;
  },
};

async function publishLines(call: Call<Flags>) {
  const { flags, signal, terminal } = call;
  const { store } = await call.database();
  let published = 0;
  let batch: OutgoingMessage[] = [];
  let number = 0;
  const flush = async () => {
    if (batch.length > 0) published += (await append(store, flags.source, batch)).length;
    batch = [];
    terminal.progress(`${count(published)} published`);
  };
  try {
    for await (const line of createInterface({ input: terminal.input })) {
      number++;
      if (line.trim() === "") continue;
      batch.push(messageOf(parsed(line, `line ${number}`), flags.source));
      if (batch.length === batchSize) await flush();
      if (signal.aborted) break;
    }
    if (!signal.aborted) await flush();
  } catch (error) {
    const { text } = failureOf(error);
    terminal.note(`${count(published)} messages were published before this; go on after the first ${count(published)}`);
    throw error instanceof Error && error.name === "CliError" ? error : wrongUse(`line ${number}: ${text}`);
  }
  if (flags.json) terminal.json({ published });
  else terminal.out(`${count(published)} messages published.`);
  return signal.aborted ? exitCodes.interrupted : exitCodes.done;
}

async function append(store: Store, source: string, messages: readonly OutgoingMessage[]): Promise<readonly string[]> {
  const { createOutbox, silent } = await import("postbox");
  const outbox = createOutbox(store, { source, notifier: false, telemetry: silent });
  return store.transaction(async (tx) => {
    const ids = await outbox.collecting(tx, async (box) => {
      const all: string[] = [];
      for (const message of messages) all.push((await box.send(message)).id);
      return all;
    });
    return ids;
  });
}

const fields: ReadonlySet<string> = new Set([
  ...["type", "data", "key", "topic", "id", "subject", "source", "headers", "deliverAt"],
]);

function messageOf(given: unknown, source: string): OutgoingMessage {
  if (typeof given !== "object" || given === null || Array.isArray(given)) throw wrongUse("a message is a JSON object");
  const unknown = Object.keys(given).find((name) => !fields.has(name));
  if (unknown !== undefined) throw wrongUse(`unknown field '${unknown}'; known are ${[...fields].join(", ")}`);
  const { type, data, topic, deliverAt, ...rest } = given as Record<string, unknown>;
  if (typeof type !== "string" || type === "") throw wrongUse("a message needs a type");
  if (data === undefined) throw wrongUse("a message needs data; null is possible");
  const dot = type.lastIndexOf(".");
  return {
    source,
    ...Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined)),
    type,
    topic: (topic as string | undefined) ?? (dot > 0 ? type.slice(0, dot) : type),
    datacontenttype: "application/json",
    ...(deliverAt !== undefined && { deliverAt: timeOf(deliverAt) }),
    data: new TextEncoder().encode(JSON.stringify(data)),
  };
}

function timeOf(given: unknown): Date {
  if (typeof given !== "string") throw wrongUse("deliverAt must be a time in ISO 8601");
  return readTime(given);
}

function parsed(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw wrongUse(`${what} is no JSON: ${(error as Error).message}`);
  }
}

function readHeader(text: string, earlier: Record<string, string> = {}): Record<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw wrongUse("give --header as name=value");
  return { ...earlier, [text.slice(0, at)]: text.slice(at + 1) };
}

async function readAll({ terminal }: Call<Flags>): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of terminal.input) parts.push(Buffer.from(part as Uint8Array));
  return Buffer.concat(parts).toString("utf8");
}
