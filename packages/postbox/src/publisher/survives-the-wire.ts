import { isDeepStrictEqual } from "node:util";
import { ConfigError, PostboxError } from "../errors.js";
import type { EventDefinition } from "../event/define-event.js";
import { doesNotSurvive, notCarried } from "../event/standard-schema.js";
import { type Codecs, isJson } from "../message/codec.js";

/** One event's data, as the schema was given it, returned it, and as it was encoded. */
interface Encoded {
  readonly given: unknown;
  readonly validated: unknown;
  readonly contentType: string;
  readonly bytes: Uint8Array;
}

/**
 * `SurvivesTheWire` at run time, for callers without types and for what types cannot tell: the schema must read what was
 * encoded, and what it then returns must be the same on the wire again. Throws `event-invalid` otherwise.
 * Every message is checked, since what one lacks the next may have; but where the schema returned what it was given, and
 * that is as JSON keeps it, it has read the wire form just now: then this costs a comparison. Codecs of the event's own may
 * make anything of it.
 */
export function checkSurvives(event: EventDefinition, encoded: Encoded, codecs: Codecs): Promise<void> | undefined {
  const { given, validated, contentType } = encoded;
  return event.codecs.length === 0 && isJson(contentType) && isSameJson(given, validated)
    ? undefined
    : checkByReading(event, encoded, codecs);
}

async function checkByReading(event: EventDefinition, encoded: Encoded, codecs: Codecs): Promise<void> {
  const { contentType, bytes } = encoded;
  const why = event.codecs.length === 0 ? doesNotSurvive : notCarried;
  const arriving = codecs.decode(contentType, bytes);
  const read = await event.validate(arriving).catch((cause: unknown) => {
    if (!(cause instanceof PostboxError) || cause.code !== "data-invalid") throw cause;
    throw new ConfigError("event-invalid", `${event.type}: ${why} (${cause.path})`, {
      cause,
      ...(cause.path === undefined ? {} : { path: cause.path }),
    });
  });
  // The schema has nothing to add to what arrives: it never will.
  if (read === arriving) return;
  const again = codecs.decode(contentType, codecs.encode(contentType, read));
  if (!isDeepStrictEqual(again, arriving)) {
    throw new ConfigError("event-invalid", `${event.type}: ${why} (validated twice, it changes twice)`, {
      path: "data",
    });
  }
}

/** Whether both are the same plain JSON. A date or anything else that JSON writes in another form is not. */
function isSameJson(a: unknown, b: unknown): boolean {
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) {
    return a === b && (a === null || typeof a === "string" || typeof a === "number" || typeof a === "boolean");
  }
  const prototype = Object.getPrototypeOf(a);
  if (prototype !== Object.getPrototypeOf(b)) return false;
  if (prototype !== Object.prototype && prototype !== Array.prototype) return false;
  const keys = Object.keys(a) as (keyof typeof a)[];
  return (
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && isSameJson(a[key], (b as typeof a)[key]))
  );
}
