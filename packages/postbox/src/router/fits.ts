import { ConfigError } from "../errors.js";
import type { AnyMiddleware } from "./middleware.js";

/*
 * The rules of middleware order, twice: as types whose errors are sentences, and as a check at run time with the same
 * sentences.
 */

/** Which middleware adds a key to the context, as the user writes it. */
interface Providers {
  tx: "transaction(store)";
  outputs: "outboxOutputs(outbox)";
  published: "publishOutputs(publisher)";
  delivery: 'ack: "manual"';
}
const providers: Readonly<Record<string, string>> = {
  tx: "transaction(store)",
  outputs: "outboxOutputs(outbox)",
  published: "publishOutputs(publisher)",
  delivery: 'ack: "manual"',
} satisfies Providers;

/** What a middleware declares in its types. */
type Declared<M> = M extends { readonly "~types"?: infer T } ? NonNullable<T> : never;
type NeedsOf<M> = Declared<M> extends { readonly needs: infer N } ? N : never;
export type AddsOf<M> = Declared<M> extends { readonly adds: infer A } ? A : never;
type RefusesOf<M> = Declared<M> extends { readonly refuses: infer R extends string } ? R : never;
type NameOf<M> = M extends { readonly name: infer N extends string } ? N : never;
type Provider<K> = K extends keyof Providers ? Providers[K] : "a middleware that adds it";
type Missing<C, N> = Exclude<keyof N, keyof C> & string;
type Foreign<C, N> = { [K in keyof N & keyof C]: C[K] extends N[K] ? never : K }[keyof N & keyof C] & string;
type Refused<C, M> = RefusesOf<M> & keyof C & string;

/**
 * The middleware itself if it may stand here, else a sentence that says why not. Use it as the whole parameter type.
 */
export type Fits<C, M> = [Missing<C, NeedsOf<M>>] extends [never]
  ? [Foreign<C, NeedsOf<M>>] extends [never]
    ? [Refused<C, M>] extends [never]
      ? M
      : Inside<NameOf<M>, Refused<C, M>>
    : `${NameOf<M>}() works with another store's '${Foreign<C, NeedsOf<M>>}' than the one in this context: give both the same store`
  : `${NameOf<M>}() needs '${Missing<C, NeedsOf<M>>}' in the context: .use(${Provider<Missing<C, NeedsOf<M>>>}) before it`;

type Inside<Name extends string, K extends string> = K extends "published"
  ? `${Name}() cannot stand inside publishOutputs(publisher), which would lose messages in a crash after the commit: use outboxOutputs(outbox) instead`
  : K extends "delivery"
    ? `${Name}() cannot stand behind ack: "manual", whose handler could ack before the commit: choose another ack strategy`
    : Provider<K> extends `${Name}(${string}`
      ? `${Name}() is there already: once is enough, remove this one`
      : `${Name}() cannot stand inside ${Provider<K>}: .use(${Name}()) before it`;

/**
 * The same at run time, for untyped callers, and for two stores with the same type of handle. `given` lists what the
 * router itself adds to the context.
 */
export function checkFits(given: readonly string[], outer: readonly AnyMiddleware[], inner: AnyMiddleware): void {
  const providerOf = (key: string) => outer.findLast((middleware) => middleware.adds.includes(key));
  for (const key of inner.needs) {
    const provider = providerOf(key);
    if (provider === undefined) {
      const advice = providers[key] ?? "a middleware that adds it";
      throw misplaced(`${inner.name}() needs '${key}' in the context: .use(${advice}) before it`);
    }
    if (inner.store !== undefined && provider.store !== undefined && inner.store !== provider.store) {
      throw misplaced(
        `${inner.name}() works with another store's '${key}' than the one in this context: give both the same store`,
      );
    }
  }
  for (const key of inner.refuses) {
    if (given.includes(key) || providerOf(key) !== undefined) throw misplaced(insideText(inner.name, key));
  }
}

function insideText(name: string, key: string): string {
  const provider = providers[key] ?? "a middleware that adds it";
  if (key === "delivery") {
    return (
      `${name}() cannot stand behind ${provider}, whose handler could ack before the commit: choose another ack ` +
      "strategy"
    );
  }
  if (provider.startsWith(`${name}(`)) return `${name}() is there already: once is enough, remove this one`;
  return key === "published"
    ? `${name}() cannot stand inside ${provider}, which would lose messages in a crash after the commit: use outboxOutputs(outbox) instead`
    : `${name}() cannot stand inside ${provider}: .use(${name}()) before it`;
}

function misplaced(text: string): ConfigError {
  return new ConfigError("middleware-order", text);
}
