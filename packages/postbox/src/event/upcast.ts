import { ConfigError, PermanentError, PostboxError } from "../errors.js";
import { answered } from "../internal/answer.js";
import { type Codec, codecList } from "../message/codec.js";
import { topicOfType } from "../message/topic.js";
import { checkOptions, text } from "../options.js";
import type { DataOut, EventDefinition, TypesOf } from "./define-event.js";

/** Converts data of older types into data of the event whose `upcast` lists it. Made by `upcastFrom`. */
export interface Upcaster<Old extends string = string, To = unknown> {
  /** The type that it was made from, and those which that one upcasts itself. */
  readonly types: readonly Old[];
  readonly "~older": readonly OlderType[];
  readonly "~upcast": (old: unknown) => To;
}

/** An upcaster's result as data of the event; for a promise, a sentence that fits no event. */
type Returned<To> = unknown extends To
  ? To
  : To extends PromiseLike<unknown>
    ? "an upcaster returns at once: it must need nothing to wait for"
    : Mutable<To>;

/**
 * Removes `readonly` from the type of a constant. It is inferred as a constant so that "EUR" is no mere string, not to
 * make its arrays readonly.
 */
type Mutable<To> = unknown extends To
  ? To
  : To extends Date | Uint8Array | Map<unknown, unknown> | Set<unknown> | ((...args: never[]) => unknown)
    ? To
    : { -readonly [K in keyof To]: Mutable<To[K]> };

/** An older type that an event takes instead of its own. */
export interface OlderType<Out = unknown> {
  readonly type: string;
  readonly topic: string;
  /** Its own codecs, which routers prefer to theirs. */
  readonly codecs: readonly Codec[];
  /** Converts decoded data of this type to validated data of the event. */
  readonly "~read": (decoded: unknown) => Promise<Out>;
}

/** Options of `upcastFrom` for a type that is given by its name. */
export interface UpcastFromOptions {
  /** The topic of messages of the old type. Defaults to the type before its last dot. */
  readonly topic?: string;
  /** The encodings of their data. Defaults to the codecs of the router. */
  readonly codecs?: readonly Codec[];
}

/**
 * Upcasts from an older event, or from a type. From an event, its schema first validates the data and gives it a type,
 * and everything that it upcasts itself is included. From a type, `upcast` gets whatever was decoded. `upcast` must
 * depend on nothing but its argument: if it throws, the message is parked with `upcast-failed`.
 *
 * @example
 * ```ts
 * const OrderPlacedV2 = defineEvent({
 *   type: "shop.orders.v2.OrderPlaced",
 *   schema: z.object({ orderId: z.string(), cents: z.number() }),
 *   upcast: [upcastFrom(OrderPlaced, ({ orderId, total }) => ({ orderId, cents: total * 100 }))],
 * });
 * ```
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

/** Every type from which `upcasters` lead to this one. A direct way is preferred to one through another type. */
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
    new PermanentError(
      `${from.type} cannot be upcast to ${type}: ${why}; correct the upcaster, then retry the message`,
      {
        code: "upcast-failed",
        cause,
        ...(path !== undefined && { path }),
      },
    );
  return async (decoded) => {
    const old = await from["~read"](decoded);
    let data: unknown;
    try {
      data = answered(upcast(old));
    } catch (cause) {
      throw failed(cause instanceof Error ? cause.message : String(cause), cause);
    }
    // Types exclude this, but a schema that takes any object would accept it.
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

/** Whether it is a promise, of whatever library. */
function isThenable(value: unknown): boolean {
  return typeof (value as { readonly then?: unknown } | null | undefined)?.then === "function";
}

function invalid(why: string): ConfigError {
  return new ConfigError("event-invalid", why);
}
