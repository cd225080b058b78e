import { exponential } from "../../backoff.js";
import { PostboxError } from "../../errors.js";
import { type Runtime, sleep } from "../../internal/runtime.js";
import type { Hints } from "../../store.js";
import type { Telemetry } from "../../telemetry/events.js";

export interface HearingOptions {
  readonly hints: Pick<Hints<unknown>, "listen">;
  readonly boxName: string;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
  /** There may be something new. */
  hinted(): void;
}

const backoff = exponential({ initialMs: 200, maxMs: 30_000 });

/**
 * Listens to hints until the signal is aborted, again and again where it fails. Never rejects: a relay that hears nothing
 * finds everything by looking, only later.
 */
export async function listen(options: HearingOptions, signal: AbortSignal): Promise<void> {
  const { hints, boxName: box, runtime, telemetry, hinted } = options;
  let failures = 0;
  const listening = () => {
    failures = 0;
    telemetry({ name: "relay.listening", box });
    // What was hinted before, nobody heard.
    hinted();
  };
  while (!signal.aborted) {
    try {
      await hints.listen(box, { listening, hinted }, signal);
    } catch (error) {
      const retryInMs = backoff(++failures, runtime.random);
      telemetry({ name: "relay.deaf", box, error: PostboxError.from(error, "store-failed"), retryInMs });
      await sleep(runtime, retryInMs, signal);
    }
  }
}
