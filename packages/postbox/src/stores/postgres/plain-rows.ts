/*
 * Rows as they come from the server: in the order of their columns, and as texts. Naming and parsing every column costs more than
 * all else that is done to a row; and this way no parser that the user set for a type comes in between.
 */

/** What a column holds: its text, bytes where its type is `bytea`, or NULL. */
export type Field = string | Uint8Array | null;

const bytea = 17;

/**
 * `pg` takes the same option for the parsers of results and for the types of parameters, of which there are none. It asks for the
 * parser of each column once per result, so each column has a state of its own.
 *
 * A row becomes what it will be kept as when it arrives, not when all of them have: thousands of texts that only wait to be read
 * would be copied by every garbage collection meanwhile.
 */
const types = Object.assign([], {
  getTypeParser: (type: number) => (type === bytea ? bytesReader() : textReader()),
});

/** What a query of `pg` takes to answer with plain rows. */
export const plainRows = { rowMode: "array", types } as const;

/** Most rows have their source, their type and the like in common with the one before: each such text is kept once. */
function textReader(): (field: string) => string {
  let last = "";
  return (field) => {
    if (field !== last) last = field;
    return last;
  };
}

const chunkBytes = 64 * 1024;

/** Reads columns of bytes. Small ones share a chunk of memory: each alone would cost more than its bytes. */
function bytesReader(): (field: string) => Uint8Array {
  let chunk = Buffer.alloc(0);
  let used = 0;
  return (field) => {
    if (!field.startsWith("\\x")) return bytesOfEscaped(field);
    const length = (field.length - 2) / 2;
    if (length > chunkBytes / 8) return new Uint8Array(Buffer.from(field.slice(2), "hex"));
    if (used + length > chunk.byteLength) {
      chunk = Buffer.allocUnsafeSlow(chunkBytes);
      used = 0;
    }
    chunk.write(field.slice(2), used, length, "hex");
    const bytes = new Uint8Array(chunk.buffer, used, length);
    used += length;
    return bytes;
  };
}

/** As the server writes bytes with `bytea_output = escape`. */
function bytesOfEscaped(text: string): Uint8Array {
  const backslash = 92;
  const bytes = new Uint8Array(text.length);
  let length = 0;
  for (let at = 0; at < text.length; length++) {
    const code = text.charCodeAt(at);
    const isOctal = code === backslash && text.charCodeAt(at + 1) !== backslash;
    bytes[length] = isOctal ? Number.parseInt(text.slice(at + 1, at + 4), 8) : code;
    at += isOctal ? 4 : code === backslash ? 2 : 1;
  }
  return bytes.slice(0, length);
}
