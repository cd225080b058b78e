import { PostboxError } from "../errors.js";
import type { Codec } from "./codec.js";

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Deeper than any intended message, and as deep as the parsers of other languages go. */
const deepest = 1000;

/**
 * JSON that never changes a value silently: what would arrive as something else (`undefined`, NaN, BigInt, invalid
 * dates, Map and other class instances, cycles …) throws `data-invalid` with its path. Valid dates and other objects
 * with `toJSON` are written as `toJSON` returns. No data is no bytes.
 */
export const jsonCodec: Codec = {
  contentType: "application/json",
  encode(data) {
    if (data === undefined) return new Uint8Array(0);
    check(data, "data", []);
    return Buffer.from(JSON.stringify(data), "utf8");
  },
  decode: (bytes) => (bytes.byteLength === 0 ? undefined : JSON.parse(decoder.decode(bytes))),
};

function check(value: unknown, path: string, above: object[]): void {
  switch (typeof value) {
    case "string":
    case "boolean":
      return;
    case "number":
      if (Number.isFinite(value)) return;
      throw lossy(path, `is ${value}, which JSON writes as null`);
    case "object":
      if (value !== null) checkObject(value, path, above);
      return;
    case "undefined":
      throw lossy(path, "is undefined, which JSON drops", "leave the key out, or write null");
    default:
      throw lossy(path, `is a ${typeof value}, which JSON cannot write`);
  }
}

function checkObject(value: object, path: string, above: object[]): void {
  if (above.includes(value)) throw lossy(path, "refers back to an object that contains it");
  if (above.length === deepest) throw lossy("data", `is nested over ${deepest} deep`, "flatten it");
  if (value instanceof Date && Number.isNaN(value.getTime())) throw lossy(path, "is an invalid Date");
  // Before toJSON, since that of a Buffer returns something else.
  if (ArrayBuffer.isView(value)) throw lossy(path, `is a ${nameOf(value)}, which JSON does not keep`);
  above.push(value);
  if ("toJSON" in value && typeof value.toJSON === "function") {
    check(value.toJSON(""), path, above);
  } else if (Array.isArray(value)) {
    checkArray(value, path, above);
  } else if (isPlain(value)) {
    checkMembers(value, path, above);
  } else {
    throw lossy(path, `is a ${nameOf(value)}, which JSON does not keep`);
  }
  above.pop();
}

function checkArray(value: readonly unknown[], path: string, above: object[]): void {
  // Not forEach, which would skip the holes of a sparse array, which JSON fills with null.
  for (let index = 0; index < value.length; index++) check(value[index], `${path}[${index}]`, above);
  if (Object.keys(value).length > value.length) throw lossy(path, "is an array with other keys, which JSON drops");
}

function checkMembers(value: object, path: string, above: object[]): void {
  for (const key of Object.getOwnPropertySymbols(value)) {
    if (Object.prototype.propertyIsEnumerable.call(value, key)) throw lossy(path, `has the key ${String(key)}`);
  }
  for (const [key, inner] of Object.entries(value)) check(inner, `${path}${member(key)}`, above);
}

/** Whether it is no class instance, whose private fields, getters and prototype would be lost; of any realm. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

function nameOf(value: object): string {
  return value.constructor?.name || "thing without a name";
}

function member(key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

function lossy(path: string, why: string, advice = "write it in a form that JSON keeps"): PostboxError {
  return new PostboxError("data-invalid", `${path} ${why}; ${advice}`, { path });
}
