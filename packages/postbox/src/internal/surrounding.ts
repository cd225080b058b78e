import { AsyncLocalStorage } from "node:async_hooks";

interface Scope {
  readonly owner: object;
  readonly value: unknown;
  readonly outer: Scope | undefined;
}

/**
 * One for all: before Node.js 24, each AsyncLocalStorage that was ever used slows down every promise of the process for
 * good.
 */
const scopes = new AsyncLocalStorage<Scope>();

/** A value that is visible to everything that a function awaits or starts. */
export interface Surrounding<T> {
  run<R>(value: T, work: () => R): R;
  /** The innermost value; undefined outside of any. */
  get(): T | undefined;
}

export function createSurrounding<T>(): Surrounding<T> {
  const owner = {};
  return {
    run: (value, work) => scopes.run({ owner, value, outer: scopes.getStore() }, work),
    get() {
      for (let scope = scopes.getStore(); scope !== undefined; scope = scope.outer) {
        if (scope.owner === owner) return scope.value as T;
      }
      return undefined;
    },
  };
}
