import type { DescFile } from "@bufbuild/protobuf";
import { type GeneratedFile, getComments, type Printable } from "@bufbuild/protoplugin";
import { methodOf, namesOf, registrationOf } from "./names.js";
import type { ProtoEvent } from "./proto-event.js";

/*
 * All types are written out, and by names from imports: protoplugin makes declarations of each file alone, and without the types that
 * come with the compiler.
 */

const runtime = "@postbox/protobuf";

/** Writes the code of one file. */
export function printFile(f: GeneratedFile, file: DescFile, events: readonly ProtoEvent[]): void {
  f.preamble(file);
  for (const event of events) printEvent(f, event);
  printPublisher(f, file, events);
  for (const event of events) printRegistration(f, event);
  printService(f, file, events);
}

function printEvent(f: GeneratedFile, event: ProtoEvent): void {
  const { message, name, type, topic, key } = event;
  const schema = f.importSchema(message);
  const typed = f.import("ProtobufEvent", runtime, true);
  f.print(documentation(f, event, [...commentOf(event), `On the wire: \`${type}\`.`]));
  f.print`${f.export("const", name)}: ${typed}<${f.string(type)}, typeof ${schema}> =`;
  f.print`  ${f.import("defineProtobufEvent", runtime)}({`;
  f.print`    type: ${f.string(type)},`;
  f.print`    message: ${schema},`;
  if (key !== undefined) f.print`    key: ${f.string(key)},`;
  if (topic !== undefined) f.print`    topic: ${f.string(topic)},`;
  f.print`  });`;
  f.print();
}

function printPublisher(f: GeneratedFile, file: DescFile, events: readonly ProtoEvent[]): void {
  const { publisher, createPublisher } = namesOf(file);
  const typed = f.import("PublishEvent", runtime, true);
  f.print(f.jsDoc(`Publishes the events of ${file.name}.proto.`));
  f.print`${f.export("interface", publisher)} {`;
  for (const event of events) {
    f.print(documentation(f, event, [...commentOf(event), `Publishes \`${event.type}\`.`], "  "));
    f.print`  readonly ${methodOf(event)}: ${typed}<typeof ${event.name}>;`;
  }
  f.print`}`;
  f.print();
  f.print(f.jsDoc("Over a publisher, an outbox, or an outbox bound to your transaction: `outbox.in(tx)`."));
  const given = f.import("Publisher", "postbox", true);
  f.print`${f.export("function", createPublisher)}(publisher: ${given}): ${publisher} {`;
  f.print`  return {`;
  for (const event of events) {
    f.print`    ${methodOf(event)}: (data, options) => publisher.publish(${event.name}, data, options),`;
  }
  f.print`  };`;
  f.print`}`;
  f.print();
}

function printRegistration(f: GeneratedFile, event: ProtoEvent): void {
  const typed = f.import("Registration", "postbox", true);
  f.print(documentation(f, event, [`Handles \`${event.type}\`: \`router.on(${event.name}, handler)\`.`]));
  f.print`${f.export("const", registrationOf(event))}: ${typed}<typeof ${event.name}> = ${f.import("onEvent", runtime)}(${event.name});`;
  f.print();
}

function printService(f: GeneratedFile, file: DescFile, events: readonly ProtoEvent[]): void {
  const typed = f.import("EventService", runtime, true);
  const types = list(
    events.map(({ name }) => `typeof ${name}`),
    "",
  );
  f.print(f.jsDoc(`All events of ${file.name}.proto.`));
  f.print`${f.export("const", namesOf(file).service)}: ${typed}<readonly ${types}> = {`;
  f.print`  name: ${f.string(file.proto.package || `${file.name}.proto`)},`;
  f.print`  file: ${f.importSchema(file)},`;
  f.print`  events: ${list(
    events.map(({ name }) => name),
    "  ",
  )},`;
  f.print`};`;
}

/** On one line, or each on its own where that would be long. */
function list(items: readonly string[], indent: string): string {
  const line = items.join(", ");
  return line.length <= 60 ? `[${line}]` : `[\n${items.map((item) => `${indent}  ${item},\n`).join("")}${indent}]`;
}

/** What the `.proto` says above the message. */
function commentOf({ message }: ProtoEvent): string[] {
  const text = getComments(message).leading ?? "";
  const lines = text.trimEnd().split("\n");
  const comment = lines.map((line) => line.replace(/^ /, "").trimEnd()).join("\n");
  return comment.trim() === "" ? [] : [comment];
}

function documentation(f: GeneratedFile, event: ProtoEvent, paragraphs: readonly string[], indent = ""): Printable {
  const { message } = event;
  const tags = [`@generated from message ${message.typeName}`];
  if (message.deprecated || message.file.deprecated) tags.push("@deprecated");
  return f.jsDoc([...paragraphs, tags.join("\n")].join("\n\n"), indent);
}
