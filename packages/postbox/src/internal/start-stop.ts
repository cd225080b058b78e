import { ConfigError } from "../errors.js";

/** `start` and `stop` for something that has `run(signal)`: at most one run at a time, and `stop` waits for its end. */
export interface StartStop<Args extends readonly unknown[]> {
  start(...args: Args): void;
  stop(): Promise<void>;
}

export function startStop<Args extends readonly unknown[]>(
  name: string,
  run: (signal: AbortSignal, ...args: Args) => Promise<void>,
): StartStop<Args> {
  let current: { readonly controller: AbortController; readonly ended: Promise<void>; over: boolean } | undefined;
  return {
    start(...args) {
      if (current?.over === false) {
        throw new ConfigError("already-started", `${name} runs already; await stop() before starting it again`);
      }
      const controller = new AbortController();
      const started = { controller, ended: run(controller.signal, ...args), over: false };
      // A run that fails tells telemetry, and whoever calls stop(); it must not end the process.
      const over = () => {
        started.over = true;
      };
      started.ended.then(over, over);
      current = started;
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
