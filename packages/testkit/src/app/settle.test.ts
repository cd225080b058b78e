import { expect, it } from "vitest";
import { createActivity } from "./activity.js";
import type { NotSettledError, UnhandledMessage } from "./not-settled-error.js";
import { settle } from "./settle.js";

/**
 * A store and a broker in real time, without telemetry. `looks` has what is busy, for each time that they are asked.
 */
function untold(looks: readonly (readonly string[])[]) {
  let asked = 0;
  return {
    activity: createActivity(() => {}),
    deliveries: () => 0,
    isHandling: () => false,
    async standing() {
      const busy = looks[Math.min(asked++, looks.length - 1)] as readonly string[];
      return { busy, unhandled: [], reported() {} };
    },
  };
}

it("asks again if no event reports that a message was handled, as with a user's own router", async () => {
  await settle(untold([["a in the box"], ["a in the box"], []]), { timeoutMs: 2_000 });
});

it("gives up if nothing changes", async () => {
  const settling = settle(untold([["a in the box"]]), { timeoutMs: 60 });
  await expect(settling).rejects.toThrow("nothing happened for 60 ms while a in the box");
});

it("continues as long as something changes", async () => {
  const left = Array.from({ length: 8 }, (_, n) => [`${8 - n} in the box`]);
  await settle(untold([...left, []]), { timeoutMs: 60 });
});

it("reports messages that failed before those that wait behind them", async () => {
  const message = (id: string, status: UnhandledMessage["status"]): UnhandledMessage => ({ id, status, type: "a.B" });
  const unhandled = [
    message("1", "waiting"),
    message("2", "retrying"),
    message("3", "waiting"),
    message("4", "parked"),
  ];
  const settling = settle({ ...untold([[]]), standing: async () => ({ busy: [], unhandled, reported() {} }) });
  const error = await settling.catch((thrown: NotSettledError) => thrown);
  expect(error?.messages.map(({ id }) => id)).toEqual(["2", "4", "1", "3"]);
});
