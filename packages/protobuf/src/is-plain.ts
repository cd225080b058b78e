/**
 * Whether it is an object of names and values, even from another realm or without a prototype. Instances of classes and
 * arrays are not.
 */
export function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
