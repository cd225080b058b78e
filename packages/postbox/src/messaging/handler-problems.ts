import type { HealthProblem } from "../health.js";
import type { RunsReceiver } from "../router/router.js";
import { duration } from "../stores/figures.js";

/** Handlers run for so long that other messages may wait for their places. */
export type HandlerProblem = Extract<HealthProblem, { readonly code: "handlers-slow" }>;

/** What is wrong with the handlers of a service, as far as its consumers can tell. */
export function handlerProblems(
  consumers: ReadonlyMap<string, Pick<RunsReceiver, "slowHandlers" | "concurrency">>,
): HandlerProblem[] {
  return [...consumers].flatMap(([consumer, { slowHandlers, concurrency }]) => {
    const [oldest] = slowHandlers;
    if (oldest === undefined) return [];
    const { id, type, runningMs } = oldest;
    const count = slowHandlers.length;
    const isFull = count >= concurrency;
    const text =
      `${count} of the ${concurrency} handlers of ${consumer} that may run at a time have run for too long, the ` +
      "oldest for " +
      `${duration(runningMs)}, with message ${id} of type ${type}; ` +
      `${isFull ? "this process handles no other message" : "what comes behind them, of their keys, waits"}: ` +
      "give what they wait for a time limit, or end them by the middleware timeout(ms)";
    const severity = isFull ? "error" : "warning";
    const about = { consumer, count, concurrency, runningMs, id, ...(type !== undefined && { type }) };
    return [{ code: "handlers-slow", severity, text, ...about }];
  });
}
