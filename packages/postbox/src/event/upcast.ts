import { ConfigError, PermanentError, PostboxError } from "../errors.js";
import { type Codec, codecList } from "../message/codec.js";
import { topicOfType } from "../message/topic.js";
import { checkOptions, text } from "../options.js";
import type { DataOut, EventDefinition, TypesOf } from "./define-event.js";

/** How data of an older type become data of the event whose `upcast` lists this; `upcastFrom` makes it. */
export interface Upcaster<Old extends string = string, To = unknown> {
  /** What it takes: the type that it was made from, and what that one upcasts itself. */
  readonly types: readonly Old[];
  readonly "~older": readonly OlderType[];
  readonly "~upcast": (old: unknown) => To;
}

/** What an upcaster returns, as data of the event; where it is a promise, a sentence that fits no event. */
type Returned<To> = unknown extends To
  ? To
  : To extends PromiseLike<unknown>
    ? "an upcaster returns at once: it must need nothing to wait for"
    : Mutable<To>;

/**
 * The type of a constant without its readonly: it was inferred as one so that "EUR" is no mere string, not for its
 * arrays' sake.
 */
type Mutable<To> = unknown extends To
  ? To
  : To extends Date | Uint8Array | Map<unknown, unknown> | Set<unknown> | ((...args: never[]) => unknown)
    ? To
    : { -readonly [K in keyof To]: Mutable<To[K]> };

/** An older type that an event takes in the place of its own. */
export interface OlderType<Out = unknown> {
  readonly type: string;
  readonly topic: string;
  /** Its own, which routers prefer to theirs. */
  readonly codecs: readonly Codec[];
  /** From decoded data of this type to validated data of the event. */
  readonly "~read": (decoded: unknown) => Promise<Out>;
}

export interface UpcastFromOptions {
  /** Where messages of the old type go. Defaults to the type before its last dot. */
  readonly topic?: string;
  /** How their data travel. Defaults to the codecs of the router. */
  readonly codecs?: readonly Codec[];
}

/**
 * Takes data of an older type: of an event, whose schema validates them before and gives them their type, and with it
 * everything that this event upcasts itself; or, by its name alone, of whatever was decoded. `upcast` must not depend
 * on anything but its argument: what it throws is thrown for good, and the message is parked with `upcast-failed`.
 */
export function upcastFrom<E extends EventDefinition, const To>(
  old: E,
  upcast: (old: DataOut<E>) => To,
): Upcaster<TypesOf<E>, Returned<To>>;
export function upcastFrom<const Old extends string, const To>(
  old: Old,
  upcast: (old: unknown) => To,
  options?: UpcastFromOptions,
): Upcaster<Old, Returned<To>>;
export function upcastFrom(
  old: string | EventDefinition,
  upcast: (old: never) => unknown,
  options: UpcastFromOptions = {},
): Upcaster {
  checkOptions("upcastFrom", options, { topic: text, codecs: codecList });
  const known = typeof old !== "string";
  if (typeof upcast !== "function" || (known ? typeof old?.validate !== "function" : old === "")) {
    throw new ConfigError("event-invalid", "upcastFrom(old, upcast) takes an older event, or its type, and a function");
  }
  const direct: OlderType = known
    ? { type: old.type, topic: old.topic, codecs: old.codecs, "~read": old.validate }
    : {
        type: old,
        topic: options.topic ?? topicOfType(old),
        codecs: Object.freeze([...(options.codecs ?? [])]),
        "~read": async (decoded) => decoded,
      };
  const older = [direct, ...(known ? old.upcasts : [])];
  return { types: older.map(({ type }) => type), "~older": older, "~upcast": upcast as (old: unknown) => unknown };
}

/** Every type that `upcasters` lead from to this one. A way of its own goes before one through another type. */
export function olderTypes<Out>(
  type: string,
  upcasters: readonly Upcaster[],
  validate: (data: unknown) => Promise<Out>,
): readonly OlderType<Out>[] {
  const direct = new Set<string>();
  for (const upcaster of upcasters) {
    const from = upcaster?.types?.[0];
    if (from === undefined) throw invalid(`'upcast' of ${type} takes what upcastFrom returns`);
    if (from === type) throw invalid(`${type} upcasts from itself; give what changed another type`);
    if (direct.has(from)) throw invalid(`${type} has two upcasters from ${from}; keep one`);
    direct.add(from);
  }
  const found = new Map<string, OlderType<Out>>();
  for (const { "~older": older, "~upcast": upcast } of upcasters) {
    for (const [at, from] of older.entries()) {
      if (at > 0 && direct.has(from.type)) continue;
      if (from.type === type) throw invalid(`${type} upcasts from ${older[0]?.type}, which upcasts from it; keep one`);
      if (found.has(from.type)) {
        throw invalid(`${type} has two ways from ${from.type}; add an upcaster from it, which goes before both`);
      }
      found.set(from.type, { ...from, "~read": reader(from, type, upcast, validate) });
    }
  }
  return Object.freeze([...found.values()]);
}

function reader<Out>(
  from: OlderType,
  type: string,
  upcast: (old: unknown) => unknown,
  validate: (data: unknown) => Promise<Out>,
): (decoded: unknown) => Promise<Out> {
  const failed = (why: string, cause: unknown, path?: string) =>
    new PermanentError(`${from.type} cannot be upcast to ${type}: ${why}; mend the upcaster, then retry the message`, {
      code: "upcast-failed",
      cause,
      ...(path !== undefined && { path }),
    });
  return async (decoded) => {
    const old = await from["~read"](decoded);
    let data: unknown;
    try {
      data = upcast(old);
    } catch (cause) {
      throw failed(cause instanceof Error ? cause.message : String(cause), cause);
    }
    // Types forbid it; a schema that takes any object would take it.
    if (isThenable(data)) throw failed("it returned a promise, but must need nothing to wait for", data);
    try {
      return await validate(data);
    } catch (cause) {
      // A schema that fails by itself may succeed the next time.
      if (!(cause instanceof PostboxError) || cause.code !== "data-invalid") throw cause;
      throw failed(cause.message, cause, cause.path);
    }
  };
}

/** A promise, or the like of one from elsewhere. */
function isThenable(value: unknown): boolean {
  return typeof (value as { readonly then?: unknown } | null | undefined)?.then === "function";
}

function invalid(why: string): ConfigError {
  return new ConfigError("event-invalid", why);
}
