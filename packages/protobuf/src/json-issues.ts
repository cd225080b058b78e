import { ScalarType } from "@bufbuild/protobuf";
import { isPlain } from "./is-plain.js";
import { checkDepth, type Path, type Tell } from "./issues.js";
import { scalarProblem } from "./scalar-problem.js";

/**
 * Tells what of the value of a Struct is no JSON: of a Date, a bigint or undefined the encoder would make null, or
 * nothing. On the wire each value is a message, and so is what it contains.
 */
export function checkJsonObject(value: unknown, path: Path, depth: number, tell: Tell): void {
  if (!isPlain(value)) {
    tell(path, "must be a JSON object");
  } else if (value.$typeName === "google.protobuf.Struct") {
    tell(path, "is a google.protobuf.Struct: write the JSON object that it stands for");
  } else {
    checkObject(value, path, depth, tell);
  }
}

function checkObject(value: Readonly<Record<string, unknown>>, path: Path, depth: number, tell: Tell): void {
  checkDepth(path, depth);
  for (const [name, each] of Object.entries(value)) {
    const problem = scalarProblem(ScalarType.STRING, name);
    if (problem !== undefined) tell([...path, name], `its key ${problem}`);
    checkJson(each, [...path, name], depth + 1, tell);
  }
}

function checkJson(value: unknown, path: Path, depth: number, tell: Tell): void {
  checkDepth(path, depth);
  if (typeof value === "string") {
    const problem = scalarProblem(ScalarType.STRING, value);
    if (problem !== undefined) tell(path, problem);
  } else if (Array.isArray(value)) {
    checkDepth(path, depth + 1);
    // Also what is missing between others.
    for (const [at, item] of value.entries()) checkJson(item, [...path, at], depth + 2, tell);
  } else if (isPlain(value)) {
    checkObject(value, path, depth + 1, tell);
  } else if (value !== null && typeof value !== "number" && typeof value !== "boolean") {
    tell(path, "must be JSON: an object, an array, a string, a number, true, false or null");
  }
}
