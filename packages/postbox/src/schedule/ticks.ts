/** The moments of a recurrence, in ms since 1970. They are the same for every process, whenever it started. */
export interface Ticks {
  /** The first tick after this moment; undefined if there is none. */
  next(after: number): number | undefined;
  /** The last `most` ticks after `after`, up to and including `upTo`, in ascending order. */
  between(after: number, upTo: number, most: number): readonly number[];
}

/** The multiples of `everyMs` since 1970, so that a restart does not move them. */
export function everyTicks(everyMs: number): Ticks {
  const upTo = (ms: number) => Math.floor(ms / everyMs) * everyMs;
  return {
    next: (after) => upTo(after) + everyMs,
    between(after, until, most) {
      const ticks: number[] = [];
      for (let tick = upTo(until); tick > after && ticks.length < most; tick -= everyMs) ticks.push(tick);
      return ticks.reverse();
    },
  };
}
