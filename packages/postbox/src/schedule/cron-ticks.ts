import type { Cron } from "croner";
import { loadDriver } from "../connect/load-driver.js";
import { ConfigError } from "../errors.js";
import type { Ticks } from "./ticks.js";

/**
 * The ticks of a cron expression in a time zone, by `croner`. Rejects with `driver-missing` if `croner` is not
 * installed, and with `option-invalid` for an invalid expression.
 */
export async function cronTicks(schedule: string, expression: string, timeZone: string): Promise<Ticks> {
  const { Cron: Expression } = await loadDriver("croner", () => import("croner"));
  let cron: Cron;
  try {
    cron = new Expression(expression, { timezone: timeZone });
  } catch (cause) {
    throw invalid(schedule, expression, (cause as Error).message, cause);
  }
  // croner accepts a single date as an expression, but a schedule recurs.
  if (cron.getPattern() === undefined) throw invalid(schedule, expression, "it is a single date");
  const next = (after: number) => cron.nextRun(new Date(after))?.getTime();
  return {
    next,
    between(after, upTo, most) {
      const ticks: number[] = [];
      for (let tick = next(after); tick !== undefined && tick <= upTo; tick = next(tick)) {
        // After a long time without a run there may be millions: these are found from the end.
        if (ticks.length === most) return latest(cron, after, upTo, most);
        ticks.push(tick);
      }
      return ticks;
    },
  };
}

/** Ticks are whole seconds, and croner returns those before the given second. */
function latest(cron: Cron, after: number, upTo: number, most: number): number[] {
  const before = new Date((Math.floor(upTo / 1000) + 1) * 1000);
  const ticks = cron.previousRuns(most, before).map((tick) => tick.getTime());
  return ticks.filter((tick) => tick > after).reverse();
}

function invalid(schedule: string, expression: string, why: string, cause?: unknown): ConfigError {
  return new ConfigError(
    "option-invalid",
    `createSchedule: '${schedule}' cannot tick by cron ${JSON.stringify(expression)}: ${why}; ` +
      'give minute, hour, day of month, month and day of week, such as "0 9 * * 1-5"',
    { path: `${schedule}.cron`, cause },
  );
}
