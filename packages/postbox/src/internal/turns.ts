/** Lets callers in one at a time, in order of arrival. */
export interface Turns {
  /** Resolves when it is the caller's turn, to a function that ends the turn. Ending it again has no effect. */
  enter(): Promise<() => void>;
}

export function createTurns(): Turns {
  let last: Promise<void> = Promise.resolve();
  return {
    async enter() {
      const before = last;
      let leave = () => {};
      last = new Promise((resolve) => {
        leave = resolve;
      });
      await before;
      return leave;
    },
  };
}
