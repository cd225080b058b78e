/** One at a time, in the order of asking. */
export interface Turns {
  /** Resolves when it is the caller's turn, with what ends it; to end it again does nothing. */
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
