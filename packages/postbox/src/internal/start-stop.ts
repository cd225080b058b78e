import { ConfigError } from "../errors.js";

/** Implements `start` and `stop` with `run(signal)`: at most one run at a time; `stop` waits for its end. */
export interface StartStop<Args extends readonly unknown[]> {
  /**
   * Resolves to true when it is running, and to false if it was stopped first. Rejects if the run fails before it is
   * running. If the caller does not await the promise, telemetry reports the failure, and the process continues.
   * Throws at once if it is already running.
   */
  start(...args: Args): Promise<boolean>;
  stop(): Promise<void>;
}

/** `run` calls `ready` when it is running. */
export function startStop<Args extends readonly unknown[]>(
  name: string,
  run: (signal: AbortSignal, ready: () => void, ...args: Args) => Promise<void>,
): StartStop<Args> {
  let current: { readonly controller: AbortController; readonly ended: Promise<void>; over: boolean } | undefined;
  return {
    start(...args) {
      if (current?.over === false) {
        throw new ConfigError("already-started", `${name} runs already; await stop() before starting it again`);
      }
      const controller = new AbortController();
      let ready = () => {};
      const running = new Promise<boolean>((resolve) => {
        ready = () => resolve(!controller.signal.aborted);
      });
      const started = { controller, ended: run(controller.signal, ready, ...args), over: false };
      // Telemetry, an awaited start and `stop()` report a failed run; it must not end the process.
      const over = () => {
        started.over = true;
      };
      started.ended.then(over, over);
      current = started;
      const outcome = Promise.race([running, started.ended.then(() => false)]);
      outcome.catch(() => {});
      return outcome;
    },
    async stop() {
      const stopping = current;
      if (stopping === undefined) return;
      stopping.controller.abort();
      try {
        await stopping.ended;
      } finally {
        if (current === stopping) current = undefined;
      }
    },
  };
}
