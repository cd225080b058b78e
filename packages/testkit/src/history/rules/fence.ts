import type { TracedHistory } from "../trace-history.js";
import type { Violation } from "../violation.js";

/** `stale-write`: a former owner of a lane has changed rows of it. */
export function* fence({ history }: TracedHistory): Iterable<Violation> {
  for (const [at, event] of history.entries()) {
    if (event.what !== "wrote" || event.epoch === event.current) continue;
    const { box, lane, epoch, current } = event;
    const text = `Lane ${lane} of ${box} was written under epoch ${epoch} when its own was ${current}, at event ${at}.`;
    yield { rule: "stale-write", text, ids: [], at };
  }
}
