import { PermanentError, PostboxError } from "../errors.js";
import { answered } from "../internal/answer.js";
import type { OptionRule } from "../options.js";
import { jsonCodec } from "./json-codec.js";

/** Encodes and decodes data of one content type. Must depend on nothing but its argument. */
export interface Codec<Data = unknown> {
  /** For example `application/json`. Parameters such as `; charset=utf-8` are ignored when a codec is looked up. */
  readonly contentType: string;
  encode(data: Data): Uint8Array;
  decode(bytes: Uint8Array): Data;
}

/** The rule of options that take codecs. */
export const codecList: OptionRule = {
  expected: "an array of codecs, each with contentType, encode and decode",
  test: (value) => Array.isArray(value) && value.every(isCodec),
};

function isCodec(value: unknown): boolean {
  const { contentType, encode, decode } = (value ?? {}) as Partial<Codec>;
  return typeof contentType === "string" && typeof encode === "function" && typeof decode === "function";
}

/** Finds the codec of a content type. */
export interface Codecs {
  encode(contentType: string, data: unknown): Uint8Array;
  decode(contentType: string, bytes: Uint8Array): unknown;
  /** The same, but these take precedence. The same list returns the same codecs. */
  preferring(own: readonly Codec[]): Codecs;
}

/** Bytes, unchanged. */
const bytesCodec: Codec = {
  contentType: "application/octet-stream",
  encode(data) {
    if (data instanceof Uint8Array) return data;
    throw new PostboxError("data-invalid", "data of application/octet-stream must be a Uint8Array", {
      path: "data",
    });
  },
  decode: (bytes) => bytes,
};

/**
 * The built-in codecs (JSON, also for `text/json` and every `+json` type, and bytes), with `more` added or replacing
 * them.
 */
export function createCodecs(more: readonly Codec[] = []): Codecs {
  return codecsFrom(finder([bytesCodec, jsonCodec, ...more]));
}

type Find = (contentType: string) => Codec | undefined;

function finder(codecs: readonly Codec[]): Find {
  const byType = new Map(codecs.map((codec) => [bareType(codec.contentType), codec]));
  return (contentType) => {
    const bare = bareType(contentType);
    return byType.get(bare) ?? (isJson(bare) ? byType.get("application/json") : undefined);
  };
}

function codecsFrom(find: Find): Codecs {
  const preferred = new WeakMap<readonly Codec[], Codecs>();
  const codecs: Codecs = {
    encode(contentType, data) {
      const codec = find(contentType);
      if (codec === undefined) throw new PostboxError("content-type-unknown", unknownType(contentType));
      return answered(codec.encode(data));
    },
    decode(contentType, bytes) {
      const codec = find(contentType);
      if (codec === undefined) throw new PermanentError(unknownType(contentType), { code: "content-type-unknown" });
      try {
        return answered(codec.decode(bytes));
      } catch (cause) {
        const why = cause instanceof Error ? cause.message : String(cause);
        throw new PermanentError(`data is not what its content type ${contentType} says: ${why}`, {
          code: "data-invalid",
          path: "data",
          cause,
        });
      }
    },
    preferring(own) {
      if (own.length === 0) return codecs;
      let both = preferred.get(own);
      if (both === undefined) {
        const findOwn = finder(own);
        both = codecsFrom((contentType) => findOwn(contentType) ?? find(contentType));
        preferred.set(own, both);
      }
      return both;
    },
  };
  return codecs;
}

/** Whether data of this type is JSON text. */
export function isJson(contentType: string): boolean {
  const bare = bareType(contentType);
  return bare === "application/json" || bare === "text/json" || bare.endsWith("+json");
}

function bareType(contentType: string): string {
  const end = contentType.indexOf(";");
  return (end < 0 ? contentType : contentType.slice(0, end)).trim().toLowerCase();
}

function unknownType(contentType: string): string {
  return (
    `no codec for content type '${contentType}'; give one as 'codecs' of the event, the publisher or the router, ` +
    "or of upcastFrom"
  );
}
