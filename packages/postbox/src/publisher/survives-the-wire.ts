import { isDeepStrictEqual } from "node:util";
import { ConfigError, PostboxError } from "../errors.js";
import type { EventDefinition } from "../event/define-event.js";
import { doesNotSurvive, notCarried } from "../event/standard-schema.js";
import { type Codecs, isJson } from "../message/codec.js";

/** An event's data: as given to the schema, as returned by it, and encoded. */
interface Encoded {
  readonly given: unknown;
  readonly validated: unknown;
  readonly contentType: string;
  readonly bytes: Uint8Array;
}

/**
 * `SurvivesTheWire` at run time, for untyped callers and for what types cannot express: the schema must accept what was
 * encoded, and the result must encode to the same bytes. Throws `event-invalid` otherwise. Checks every message, since
 * an earlier one may lack the field that fails. If the schema returned its input unchanged, and that is plain JSON, it
 * has accepted the wire form already, so the check is one comparison. An event's own codecs may change anything, so
 * they always take the full check.
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
  // The schema adds nothing to what arrives, and never will.
  if (read === arriving) return;
  const again = codecs.decode(contentType, codecs.encode(contentType, read));
  if (!isDeepStrictEqual(again, arriving)) {
    throw new ConfigError("event-invalid", `${event.type}: ${why} (validated twice, it changes twice)`, {
      path: "data",
    });
  }
}

/** Whether both are the same plain JSON. False for a date, or anything else that JSON writes in another form. */
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
