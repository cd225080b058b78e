import { type DescEnum, ScalarType } from "@bufbuild/protobuf";

const signed32 = [-(2 ** 31), 2 ** 31 - 1] as const;
const unsigned32 = [0, 2 ** 32 - 1] as const;
const signed64 = [-(2n ** 63n), 2n ** 63n - 1n] as const;
const unsigned64 = [0n, 2n ** 64n - 1n] as const;
const halfPair = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;
/** The canonical form of an integer, so that no two texts are the same map key. */
const integer = /^(0|-?[1-9][0-9]*)$/;

/** Why a value does not have this type, as a text that follows its path; undefined if it has. */
export function scalarProblem(type: ScalarType, value: unknown): string | undefined {
  switch (type) {
    case ScalarType.STRING:
      if (typeof value !== "string") return "must be a string";
      return halfPair.test(value) ? "has half of a surrogate pair" : undefined;
    case ScalarType.BOOL:
      return typeof value === "boolean" ? undefined : "must be true or false";
    case ScalarType.BYTES:
      return value instanceof Uint8Array ? undefined : "must be a Uint8Array";
    case ScalarType.DOUBLE:
      return typeof value === "number" ? undefined : "must be a number";
    case ScalarType.FLOAT:
      if (typeof value !== "number") return "must be a number";
      return Number.isFinite(value) && !Number.isFinite(Math.fround(value))
        ? "is beyond what a float holds"
        : undefined;
    case ScalarType.INT32:
    case ScalarType.SINT32:
    case ScalarType.SFIXED32:
      return Number.isInteger(value) && within(value as number, signed32) ? undefined : whole(signed32);
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return Number.isInteger(value) && within(value as number, unsigned32) ? undefined : whole(unsigned32);
    case ScalarType.INT64:
    case ScalarType.SINT64:
    case ScalarType.SFIXED64:
      return typeof value === "bigint" && within(value, signed64) ? undefined : whole(signed64);
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return typeof value === "bigint" && within(value, unsigned64) ? undefined : whole(unsigned64);
  }
}

/** Like `scalarProblem`, for 64-bit integers that may be strings: with `jstype = JS_STRING` and in map keys. */
export function textualProblem(type: ScalarType, value: unknown): string | undefined {
  return scalarProblem(type, typeof value === "string" && integer.test(value) ? BigInt(value) : value);
}

/** Like `scalarProblem`, for an enum. */
export function enumProblem({ open, values }: DescEnum, value: unknown): string | undefined {
  if (open) return scalarProblem(ScalarType.INT32, value);
  return values.some(({ number }) => number === value)
    ? undefined
    : `must be one of ${values.map(({ name }) => name).join(", ")}`;
}

/** Like `scalarProblem`, for a map key, which is a string in JavaScript whatever its type is. */
export function keyTextProblem(type: ScalarType, key: string): string | undefined {
  switch (type) {
    case ScalarType.STRING:
      return scalarProblem(type, key);
    case ScalarType.BOOL:
      return key === "true" || key === "false" ? undefined : scalarProblem(type, key);
    case ScalarType.INT64:
    case ScalarType.SINT64:
    case ScalarType.SFIXED64:
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return textualProblem(type, key);
    default:
      return scalarProblem(type, integer.test(key) ? Number(key) : key);
  }
}

function within<N extends number | bigint>(value: N, [least, most]: readonly [N, N]): boolean {
  return value >= least && value <= most;
}

function whole([least, most]: readonly [number | bigint, number | bigint]): string {
  return `must be a ${typeof least === "bigint" ? "bigint" : "whole number"} from ${least} to ${most}`;
}
