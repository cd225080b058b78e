/** The steps that clean up when the run ends, for whatever reason. */
export interface Ending {
  /**
   * Adds a step and returns a function that runs it early. The steps run once each, last added first. A step that fails
   * does not prevent the others.
   */
  add(step: () => Promise<void> | void): () => Promise<void>;
  run(): Promise<void>;
}

export function createEnding(): Ending {
  const steps: (() => Promise<void>)[] = [];
  return {
    add(step) {
      let done: Promise<void> | undefined;
      const once = () => {
        done ??= Promise.resolve().then(step);
        return done;
      };
      steps.push(once);
      return once;
    },
    async run() {
      for (const step of steps.toReversed()) {
        await step().catch((error) => console.error(`while cleaning up: ${error}`));
      }
    },
  };
}

/** Runs the ending and exits on SIGINT, SIGTERM and uncaught exceptions. A second one exits at once. */
export function endInAnyCase(ending: Ending): void {
  let asked = false;
  const end = (why: string, code: number) => {
    if (asked) process.exit(code);
    asked = true;
    console.error(`\n${why}: cleaning up`);
    ending.run().finally(() => process.exit(code));
  };
  process.on("uncaughtException", (error) => end(String(error.stack), 1));
  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const) {
    process.on(signal, () => end(signal, code));
  }
}
