/*
 * Rows in the server's own form: columns by position, values as text. Naming and parsing every column costs more than
 * everything else that is done to a row. It also keeps the user's type parsers out.
 */

/** The value of a column: its text, bytes if its type is `bytea`, or NULL. */
export type Field = string | Uint8Array | null;

const bytea = 17;

/**
 * `pg` uses this option both for the parsers of results and for the types of parameters, of which there are none. It
 * asks for each column's parser once per result, so each column has its own state.
 *
 * Each row is converted to its final form when it arrives. Otherwise every garbage collection would copy thousands of
 * texts that still wait to be read.
 */
const types = Object.assign([], {
  getTypeParser: (type: number) => (type === bytea ? bytesReader() : textReader()),
});

/** The options of a `pg` query that returns plain rows. */
export const plainRows = { rowMode: "array", types } as const;

/** Most rows share their source, type and similar columns with the previous row, so equal texts are stored once. */
function textReader(): (field: string) => string {
  let last = "";
  return (field) => {
    if (field !== last) last = field;
    return last;
  };
}

const chunkBytes = 64 * 1024;

/**
 * Reads columns of bytes. Small values share a chunk of memory, because a buffer of its own would cost more than its
 * bytes.
 */
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

/** Parses bytes in the format of `bytea_output = escape`. */
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
