import type { BaseContext, Outputs } from "./context.js";
import type { Keeper, KeeperOptions } from "./keeper.js";

/** No keys at all. */
export type None = Record<never, never>;

/** Calls what is inside, with what this middleware adds to the context. May be called again: the chain has no state. */
export type Next<Adds = None> = [keyof Adds] extends [never]
  ? () => Promise<Outputs>
  : (added: Adds) => Promise<Outputs>;

/**
 * Wraps a handler. `Needs` must be in the context, `Adds` is put there, `Refuses` must not be there yet. A wrong order
 * does not compile, and throws the same sentence at run time. `run` returns the outputs that are left to publish. It
 * also gets the middleware that `next` calls, unless `next` calls the handler.
 */
export interface Middleware<Name extends string = string, Needs = None, Adds = None, Refuses extends string = never> {
  readonly name: Name;
  readonly needs: readonly string[];
  readonly adds: readonly string[];
  readonly refuses: readonly string[];
  /** The store of its transaction, to tell two stores with the same type of handle apart. */
  readonly store?: { readonly maxTransactions?: number };
  run(context: BaseContext & Needs, next: Next<Adds>, inside?: AnyMiddleware): Promise<Outputs>;
  /**
   * Whether `run` starts with a statement of its store, before it awaits anything, and calls `next` only after the
   * answer. Then a transaction directly around it may send BEGIN in the same round trip. Defaults to no.
   */
  startsWithStatement?(context: BaseContext): boolean;
  /**
   * Once `run` has settled, work that still runs inside can have no effect, and is not waited for. Defaults to false.
   */
  readonly endsInside?: boolean;
  /** Makes a keeper for one run of a router. At most one middleware of a router has it. */
  keeper?(options: KeeperOptions): Keeper;
  /** Whether its keeper stores every message before it is handled. Defaults to false. */
  readonly storesFirst?: boolean;
  /** Carries the types only. */
  readonly "~types"?: { readonly needs: Needs; readonly adds: Adds; readonly refuses: Refuses };
}

// biome-ignore lint/suspicious/noExplicitAny: the bound of all middleware, whatever it needs and adds.
export type AnyMiddleware = Middleware<string, any, any, any>;

type Listed<Field extends string, T> = [keyof T] extends [never]
  ? { readonly [F in Field]?: readonly [] }
  : { readonly [F in Field]: readonly (keyof T & string)[] };

/**
 * Defines a middleware. The annotations of `run` give its types; `needs` and `adds` name the same keys for the check at
 * run time.
 *
 * @example
 * ```ts
 * const log = defineMiddleware({
 *   name: "log",
 *   run: async ({ message }, next) => {
 *     console.log("handling", message.id);
 *     return next();
 *   },
 * });
 * const router = createRouter("billing").use(log);
 * ```
 */
export function defineMiddleware<
  const Name extends string,
  Needs = None,
  Adds = None,
  const Refuses extends string = never,
>(
  definition: {
    readonly name: Name;
    readonly refuses?: readonly Refuses[];
    readonly store?: object;
    run(context: BaseContext & Needs, next: Next<Adds>): Promise<Outputs>;
  } & Listed<"needs", Needs> &
    Listed<"adds", Adds>,
): Middleware<Name, Needs, Adds, Refuses> {
  return Object.freeze({
    ...definition,
    needs: definition.needs ?? [],
    adds: definition.adds ?? [],
    refuses: definition.refuses ?? [],
  });
}
