import {
  createRegistry,
  type DescFile,
  type DescMessage,
  fromBinary,
  fromJsonString,
  type MessageShape,
  type Registry,
  toBinary,
  toJsonString,
} from "@bufbuild/protobuf";
import { type Codec, PostboxError } from "postbox";

const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * The codecs of one message type: `application/protobuf`, the same binary form under its other common names, and
 * protobuf's JSON mapping for JSON. Unknown fields are preserved in binary and ignored in JSON, so older readers accept
 * newer writers. Data that the message cannot hold is refused with `data-invalid`.
 *
 * @example
 * ```ts
 * const codecs = protobufCodecs(DurationSchema);
 * ```
 */
export function protobufCodecs<Desc extends DescMessage>(message: Desc): readonly Codec<MessageShape<Desc>>[] {
  const binary = (contentType: string): Codec<MessageShape<Desc>> => ({
    contentType,
    encode: (data) =>
      encoded(
        message,
        () => toBinary(message, data),
        () => "give it what the .proto says",
      ),
    // Copies the bytes, so that the handler owns its bytes fields. Otherwise they would be views of the message or of a
    // buffer pool.
    decode: (bytes) => fromBinary(message, new Uint8Array(bytes)),
  });
  let known: Registry | undefined;
  /**
   * The types for `Any` and for extensions, which JSON writes by name. It holds the message's file and all its imports.
   */
  const registry = (): Registry => {
    known ??= createRegistry(...withImports(message.file));
    return known;
  };
  return [
    binary("application/protobuf"),
    // Names that other libraries use.
    binary("application/proto"),
    binary("application/x-protobuf"),
    binary("application/vnd.google.protobuf"),
    {
      contentType: "application/json",
      encode(data) {
        // Writes fields without presence even if they are zero or empty, since a JSON reader without the .proto may
        // require them.
        const asked = askedOf(registry());
        const options = { registry: asked.registry, alwaysEmitImplicit: true };
        return encoded(
          message,
          () => Buffer.from(toJsonString(message, data, options), "utf8"),
          () =>
            asked.missing === undefined
              ? "give it what JSON can say, or publish it in binary"
              : `import the file of ${asked.missing} in ${message.file.name}.proto, or publish it in binary`,
        );
      },
      decode: (bytes) =>
        fromJsonString(message, decoder.decode(bytes), { registry: registry(), ignoreUnknownFields: true }),
    },
  ];
}

/** `advice` says what to do if encoding fails. */
function encoded(message: DescMessage, encode: () => Uint8Array, advice: () => string): Uint8Array {
  try {
    return encode();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new PostboxError("data-invalid", `${message.typeName}: ${why}; ${advice()}`, {
      path: "data",
      cause,
    });
  }
}

/** The same registry, but it records the message type that it does not have: that of an `Any`. */
function askedOf(registry: Registry): { readonly registry: Registry; readonly missing: string | undefined } {
  let missing: string | undefined;
  const asked: Registry = {
    ...registry,
    getMessage(typeName) {
      const found = registry.getMessage(typeName);
      if (found === undefined) missing = typeName;
      return found;
    },
  };
  return {
    registry: asked,
    get missing() {
      return missing;
    },
  };
}

function withImports(file: DescFile, found = new Set<DescFile>()): Set<DescFile> {
  if (found.has(file)) return found;
  found.add(file);
  for (const imported of file.dependencies) withImports(imported, found);
  return found;
}
