import type { TracedHistory } from "../trace-history.js";
import type { Violation } from "../violation.js";

/** `open-end`: the history ends too early to prove anything. */
export function* completeness({ history, boxes, open }: TracedHistory): Iterable<Violation> {
  for (const { name, beganAt, appends, effects } of open) {
    const ids = [...appends.map(({ message }) => message.id), ...effects.map(({ id }) => id)];
    const text = `Transaction ${name}, at work since event ${beganAt}, neither committed nor rolled back.`;
    yield { rule: "open-end", text, ids, at: beganAt };
  }
  for (const { box, promise, rested } of boxes) {
    if (promise === undefined || rested !== undefined) continue;
    yield { rule: "open-end", text: `Nobody has looked what ${box} holds at rest.`, ids: [], at: history.length };
  }
}
