import type { AnyMiddleware } from "./middleware.js";

/** A running router, and how many handlers it may run at a time. */
interface Running {
  readonly consumer: string;
  readonly concurrency: number;
}

/** The handlers of a store may use every connection of its pool, which leaves none for anything else. */
export interface Shortage {
  /** The consumers of this process whose handlers run in transactions of that store. */
  readonly consumers: readonly string[];
  /** How many handlers of these consumers may run at a time. */
  readonly concurrency: number;
  readonly maxTransactions: number;
}

/** The running routers of this process, by the store of their transactions. */
const runningOn = new WeakMap<object, Set<Running>>();

/** Counts a running router for each of its stores, until `end` is called. */
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
