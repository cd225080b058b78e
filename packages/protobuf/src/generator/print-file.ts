import type { DescFile } from "@bufbuild/protobuf";
import type { GeneratedFile, Printable } from "@bufbuild/protoplugin";
import { methodOf, namesOf, registrationOf } from "./names.js";
import type { ProtoEvent } from "./proto-event.js";

/*
 * Every type is written out, with imported names only: protoplugin emits the declarations of each file in isolation and
 * without the compiler's own library types.
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
  const { message, name, type, topic, key, comment } = event;
  const schema = f.importSchema(message);
  const typed = f.import("ProtobufEvent", runtime, true);
  f.print(documentation(f, event, [comment, `On the wire: \`${type}\`.`]));
  f.print`${f.export("const", name)}: ${typed}<${f.string(type)}, typeof ${schema}> =`;
  f.print`  ${f.import("defineProtobufEvent", runtime)}({`;
  f.print`    type: ${f.string(type)},`;
  f.print`    message: ${schema},`;
  if (key !== undefined) f.print`    key: ${f.string(key)},`;
  if (topic !== undefined) f.print`    topic: ${f.string(topic)},`;
  if (comment !== undefined) printDescription(f, comment);
  f.print`  });`;
  f.print();
}

/** Writes the description for documentation: on one line, or one string per line. */
function printDescription(f: GeneratedFile, comment: string): void {
  const [first = "", ...others] = comment.split(/(?<=\n)/).map((line) => JSON.stringify(line));
  if (others.length === 0) {
    f.print`    docs: { description: ${first} },`;
    return;
  }
  f.print`    docs: {`;
  f.print`      description:`;
  f.print`        ${[first, ...others].join(" +\n        ")},`;
  f.print`    },`;
}

function printPublisher(f: GeneratedFile, file: DescFile, events: readonly ProtoEvent[]): void {
  const { publisher, createPublisher } = namesOf(file);
  const typed = f.import("PublishEvent", runtime, true);
  f.print(f.jsDoc(`Publishes the events of ${file.name}.proto.`));
  f.print`${f.export("interface", publisher)} {`;
  for (const event of events) {
    f.print(documentation(f, event, [event.comment, `Publishes \`${event.type}\`.`], "  "));
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
  const exported = f.export("const", registrationOf(event));
  const onEvent = f.import("onEvent", runtime);
  f.print`${exported}: ${typed}<typeof ${event.name}> = ${onEvent}(${event.name});`;
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

/** A list on one line, or one item per line if it would be too long. */
function list(items: readonly string[], indent: string): string {
  const line = items.join(", ");
  return line.length <= 60 ? `[${line}]` : `[\n${items.map((item) => `${indent}  ${item},\n`).join("")}${indent}]`;
}

function documentation(
  f: GeneratedFile,
  event: ProtoEvent,
  paragraphs: readonly (string | undefined)[],
  indent = "",
): Printable {
  const { message } = event;
  const tags = [`@generated from message ${message.typeName}`];
  if (message.deprecated || message.file.deprecated) tags.push("@deprecated");
  const said = paragraphs.filter((paragraph) => paragraph !== undefined);
  return f.jsDoc([...said, tags.join("\n")].join("\n\n"), indent);
}
