import { type DescFile, type DescMessage, getOption, hasOption } from "@bufbuild/protobuf";
import { keyProblem } from "../key-field.js";
import { enabled, event_type, key, topic } from "../postbox/v1/options_pb.js";
import { commentOf } from "./comment.js";
import { type Faults, placeOf } from "./faults.js";
import { eventName, namesOf, registrationOf } from "./names.js";
import type { ProtoEvent } from "./proto-event.js";

const details = { event_type, topic, key };

/** A name that every broker can carry: parts separated by dots, without blanks and without wildcard characters. */
const wireName = /^[^\s.*#>\p{C}]+(\.[^\s.*#>\p{C}]+)*$/u;
const wireNameBytes = 255;
const invisible = /\p{C}/gu;

/** The events of a file, in file order. Adds problems to `faults`. */
export function eventsOf(file: DescFile, faults: Faults): ProtoEvent[] {
  for (const message of file.messages) checkNested(message, faults);
  const events = file.messages.flatMap((message) => readEvent(message, faults) ?? []);
  checkNames(file, events, faults);
  return events;
}

/** Checks, across all files of a run, that each type has one definition. */
export function checkTypes(events: readonly ProtoEvent[], faults: Faults): void {
  const byType = new Map<string, ProtoEvent>();
  for (const event of events) {
    const other = byType.get(event.type);
    if (other !== undefined) {
      faults.add(
        event.message,
        `its type on the wire, '${event.type}', is that of ${other.message.name} in ${placeOf(other.message)}; ` +
          "give one of them another (postbox.v1.event_type), or another name",
      );
    }
    byType.set(event.type, event);
  }
}

function checkNested(outer: DescMessage, faults: Faults): void {
  for (const message of outer.nestedMessages) {
    const forgotten = forgottenOption(message);
    if (isEnabled(message)) {
      faults.add(message, "an event cannot be inside of another message; move it to the top of the file");
    } else if (forgotten !== undefined) {
      faults.add(
        message,
        `it has (postbox.v1.${forgotten}), but is not an event, and cannot be one inside of another message; ` +
          "remove the " +
          "option",
      );
    }
    checkNested(message, faults);
  }
}

function isEnabled(message: DescMessage): boolean {
  return getOption(message, enabled);
}

/** An option for events on a message that does not set `enabled`. */
function forgottenOption(message: DescMessage): string | undefined {
  if (hasOption(message, enabled)) return undefined;
  return Object.entries(details).find(([, option]) => hasOption(message, option))?.[0];
}

function readEvent(message: DescMessage, faults: Faults): ProtoEvent | undefined {
  if (!isEnabled(message)) {
    const forgotten = forgottenOption(message);
    if (forgotten !== undefined) {
      faults.add(
        message,
        `it has (postbox.v1.${forgotten}), but is not an event; add option (postbox.v1.enabled) = true, ` +
          "or remove the " +
          "other",
      );
    }
    return undefined;
  }
  const short = withoutEvent(message.name);
  if (short === "") {
    faults.add(message, "nothing is left of its name without the trailing 'Event'; rename it");
    return undefined;
  }
  return {
    message,
    name: eventName(short),
    type: wireNameOf(message, event_type, faults) ?? typeOf(message, faults),
    topic: wireNameOf(message, topic, faults),
    key: keyOf(message, faults),
    comment: commentOf(message),
  };
}

/** The type if no option sets it. */
function typeOf(message: DescMessage, faults: Faults): string {
  const type = withoutEvent(message.typeName);
  if (Buffer.byteLength(type) > wireNameBytes) {
    faults.add(
      message,
      `its type '${type}' is longer than ${wireNameBytes} bytes; set a shorter (postbox.v1.event_type)`,
    );
  }
  return type;
}

function withoutEvent(name: string): string {
  return name.replace(/Event$/, "");
}

function wireNameOf(
  message: DescMessage,
  option: typeof event_type | typeof topic,
  faults: Faults,
): string | undefined {
  if (!hasOption(message, option)) return undefined;
  const value = getOption(message, option);
  const like = option === topic ? "shop.orders.v1" : "shop.orders.v1.OrderPlaced";
  if (!wireName.test(value) || Buffer.byteLength(value) > wireNameBytes) {
    const shown = value.replace(invisible, (sign) => `\\u{${sign.codePointAt(0)?.toString(16)}}`);
    faults.add(
      message,
      `(${option.typeName}) is '${shown}'; write names with single dots between them, such as '${like}', ` +
        `without blanks, invisible characters, '*', '#' and '>', in at most ${wireNameBytes} bytes`,
    );
  }
  return value;
}

function keyOf(message: DescMessage, faults: Faults): string | undefined {
  if (!hasOption(message, key)) return undefined;
  const name = getOption(message, key);
  const field = message.fields.find((each) => each.name === name);
  if (field === undefined) {
    const possible = message.fields.filter((each) => keyProblem(each) === undefined).map((each) => each.name);
    const advice =
      possible.length === 0 ? "add a field for it, or remove the option" : `name one of ${possible.join(", ")}`;
    faults.add(message, `(postbox.v1.key) names the field '${name}', which it does not have; ${advice}`);
    return undefined;
  }
  const problem = keyProblem(field);
  if (problem !== undefined) {
    faults.add(
      message,
      `(postbox.v1.key) names the field '${name}', which is ${problem}; name a single string or integer`,
    );
  }
  return field.localName;
}

/**
 * Checks that every export of the file has a unique name. Two events with the same publisher method also have the same
 * registration, so methods need no check of their own.
 */
function checkNames(file: DescFile, events: readonly ProtoEvent[], faults: Faults): void {
  const taken = new Map<string, string>();
  for (const name of Object.values(namesOf(file))) taken.set(name, "what is generated for the file");
  for (const event of events) {
    const names = [event.name, registrationOf(event)];
    const clash = names.find((name) => taken.has(name));
    if (clash !== undefined) {
      faults.add(
        event.message,
        `the code for it would be called '${clash}', as is that of ${taken.get(clash)}; rename it`,
      );
    }
    for (const name of names) taken.set(name, event.message.name);
  }
}
