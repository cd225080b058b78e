import { PostboxError } from "../errors.js";
import type { Codec } from "./codec.js";

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Objects that JSON would turn into `{}` or into something else entirely, by their built-in tag. */
const lossyTags = new Set([
  "Map",
  "Set",
  "WeakMap",
  "WeakSet",
  "WeakRef",
  "Promise",
  "RegExp",
  "Error",
  "ArrayBuffer",
  "SharedArrayBuffer",
  "DataView",
]);

/**
 * JSON that never changes a value silently: what would come back different on the other side
 * (`undefined`, NaN, BigInt, invalid dates, Map, typed arrays, cycles …) throws `data-not-encodable` with its path.
 * Valid dates and other objects with `toJSON` are written as that returns.
 */
export const jsonCodec: Codec = {
  contentType: "application/json",
  encode(data) {
    check(data, "data", []);
    return Buffer.from(JSON.stringify(data), "utf8");
  },
  decode: (bytes) => JSON.parse(decoder.decode(bytes)),
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
  if (value instanceof Date && Number.isNaN(value.getTime())) throw lossy(path, "is an invalid Date");
  const tag = Object.prototype.toString.call(value).slice(8, -1);
  if (ArrayBuffer.isView(value) || lossyTags.has(tag)) throw lossy(path, `is a ${tag}, which JSON does not keep`);
  above.push(value);
  if ("toJSON" in value && typeof value.toJSON === "function") {
    check(value.toJSON(""), path, above);
  } else if (Array.isArray(value)) {
    // Not forEach: it would skip the holes of a sparse array, which JSON fills with null.
    for (let index = 0; index < value.length; index++) check(value[index], `${path}[${index}]`, above);
  } else {
    for (const key of Object.getOwnPropertySymbols(value)) {
      if (Object.prototype.propertyIsEnumerable.call(value, key)) throw lossy(path, `has the key ${String(key)}`);
    }
    for (const [key, inner] of Object.entries(value)) check(inner, `${path}${member(key)}`, above);
  }
  above.pop();
}

function member(key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

function lossy(path: string, why: string, advice = "write it in a form that JSON keeps"): PostboxError {
  return new PostboxError("data-not-encodable", `${path} ${why}; ${advice}`, { path });
}
