import { ScalarType } from "@bufbuild/protobuf";
import { isPlain } from "./is-plain.js";
import { checkDepth, type Path, type Tell } from "./issues.js";
import { scalarProblem } from "./scalar-problem.js";

/**
 * Reports parts of a Struct's value that are not JSON. The encoder would turn a Date, a bigint or undefined into null,
 * or drop it. On the wire, each value is a message, and so is its content.
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
    // `entries` also visits the holes of a sparse array.
    for (const [at, item] of value.entries()) checkJson(item, [...path, at], depth + 2, tell);
  } else if (isPlain(value)) {
    checkObject(value, path, depth + 1, tell);
  } else if (value !== null && typeof value !== "number" && typeof value !== "boolean") {
    tell(path, "must be JSON: an object, an array, a string, a number, true, false or null");
  }
}
