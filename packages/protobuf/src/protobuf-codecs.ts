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
 * The codecs of one message type: binary as `application/protobuf`, the same under the names that others give it, and
 * the JSON mapping of protobuf for JSON. What a reader does not know is kept in binary and ignored in JSON, so that a
 * newer writer stops nobody. Data that the message cannot hold are `data-invalid`.
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
    // A copy, so that fields of bytes are the handler's own and no window into the message, or into a pool of buffers.
    decode: (bytes) => fromBinary(message, new Uint8Array(bytes)),
  });
  let known: Registry | undefined;
  /** For `Any` and for extensions, which JSON writes by name: of all files that this message's file imports. */
  const registry = (): Registry => {
    known ??= createRegistry(...withImports(message.file));
    return known;
  };
  return [
    binary("application/protobuf"),
    // As others write it.
    binary("application/proto"),
    binary("application/x-protobuf"),
    binary("application/vnd.google.protobuf"),
    {
      contentType: "application/json",
      encode(data) {
        // Fields without presence also where they are zero or empty: who reads JSON without the .proto may require
        // them.
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

/** `advice` says what to do where it fails. */
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

/** The same registry, which remembers for what message it was asked in vain: that of an `Any`. */
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
