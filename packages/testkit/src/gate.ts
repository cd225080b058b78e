/** A promise that is resolved from outside: holds one side of a race until the other one is ready. */
export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

/**
 * Makes a promise that resolves when `open` is called.
 *
 * @example
 * ```ts
 * const { open, opened } = gate();
 * const router = createRouter("billing").on(OrderPlaced, () => opened);
 * open();
 * ```
 */
export function gate(): Gate {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

/**
 * Whether the promise settles within `ms`. Use it for promises that wait for a silent peer, after which no event
 * follows. Otherwise wait for the event that must come first.
 *
 * @example
 * ```ts
 * expect(await settlesWithin(relay.stop(), 1_000)).toBe(true);
 * ```
 */
export async function settlesWithin(promise: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  const settled = promise.then(
    () => true,
    () => true,
  );
  try {
    return await Promise.race([settled, late]);
  } finally {
    clearTimeout(timer);
  }
}
