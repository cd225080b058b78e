import type { AnyMiddleware } from "./middleware.js";

/** A router that runs, and how many of its handlers run at a time. */
interface Running {
  readonly consumer: string;
  readonly concurrency: number;
}

/**
 * As many handlers may run at a time as the pool of their store has connections, or more: they leave none for anything
 * else.
 */
export interface Shortage {
  /** The consumers in this process whose handlers run in transactions of that store. */
  readonly consumers: readonly string[];
  /** How many handlers of these consumers may run at a time. */
  readonly concurrency: number;
  readonly maxTransactions: number;
}

/** The routers of this process that run, by the store that their handlers have a transaction of. */
const runningOn = new WeakMap<object, Set<Running>>();

/** Counts a router that runs among all that work on the same stores, until `end` is called. */
export function countHandlers(
  consumer: string,
  concurrency: number,
  middleware: readonly AnyMiddleware[],
): { readonly shortage: Shortage | undefined; end(): void } {
  const own = { consumer, concurrency };
  const stores = [...new Set(middleware.flatMap(({ store }) => store ?? []))];
  const shortages = stores.flatMap((store) => shortageOf(store, join(store, own)) ?? []);
  const tightest = shortages.sort((a, b) => b.concurrency - b.maxTransactions - (a.concurrency - a.maxTransactions))[0];
  return {
    shortage: tightest,
    end() {
      for (const store of stores) runningOn.get(store)?.delete(own);
    },
  };
}

function join(store: object, router: Running): ReadonlySet<Running> {
  const running = runningOn.get(store) ?? new Set();
  runningOn.set(store, running.add(router));
  return running;
}

function shortageOf(
  { maxTransactions }: { readonly maxTransactions?: number },
  running: ReadonlySet<Running>,
): Shortage | undefined {
  if (maxTransactions === undefined) return undefined;
  const concurrency = [...running].reduce((sum, router) => sum + router.concurrency, 0);
  if (concurrency < maxTransactions) return undefined;
  return { consumers: [...new Set([...running].map(({ consumer }) => consumer))], concurrency, maxTransactions };
}
