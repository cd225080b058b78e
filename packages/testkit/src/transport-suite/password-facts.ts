import { inspect } from "node:util";
import { ConfigError, type TelemetryEvent } from "postbox";
import { describe, expect } from "vitest";
import { patiently } from "../patience.js";
import type { Stage, TransportFact } from "./transport-facts.js";

/** What happens with a wrong password, and how it is reported. */
export function passwordFacts(fact: TransportFact): void {
  /** Everything in a value, including the hidden properties of an error. */
  const shown = (...all: readonly unknown[]) => inspect(all, { depth: null, showHidden: true, maxStringLength: null });

  describe("with a wrong password", () => {
    fact("a sender is refused permanently, and never reveals the password", "passwords", async (stage) => {
      const told: TelemetryEvent[] = [];
      const { password, sender } = intrudersOf(stage, told);
      const { signal } = new AbortController();
      const outcomes: unknown[] = [];
      const error = await sender
        .send([stage.message("m1")], (_, outcome) => outcomes.push(outcome), signal)
        .then(
          () => undefined,
          (thrown: unknown) => thrown,
        );
      expect(error).toBeInstanceOf(ConfigError);
      expect(error).toMatchObject({ code: "transport-refused" });
      expect(outcomes).toEqual([]);
      // Only once, until another call is made.
      expect(told).toMatchObject([{ name: "transport.lost", error: { code: "transport-refused" } }]);
      if (sender.health !== undefined) expect(sender.health()).toMatchObject(refusedHealth);
      expect(shown(error, told, sender.health?.())).not.toContain(password);
    });

    fact("a receiver is refused permanently, and never reveals the password", "passwords", async (stage) => {
      const told: TelemetryEvent[] = [];
      const { password, receiver } = intrudersOf(stage, told);
      const { queue, event } = stage;
      const stopping = new AbortController();
      const running = receiver.receive({ consumer: queue, events: [event], deliver: async () => {} }, stopping.signal);
      try {
        const ended = running.then(
          () => undefined,
          (thrown: unknown) => thrown,
        );
        const error = await patiently(ended, () => `an end; told were ${shown(told)}`);
        expect(error).toBeInstanceOf(ConfigError);
        expect(error).toMatchObject({ code: "transport-refused" });
        expect(told).toMatchObject([{ name: "transport.lost", error: { code: "transport-refused" } }]);
        if (receiver.health !== undefined) expect(receiver.health()).toMatchObject(refusedHealth);
        expect(shown(error, told, receiver.health?.())).not.toContain(password);
      } finally {
        stopping.abort();
      }
    });
  });
}

const refusedHealth = { status: "down", lastFailure: { code: "transport-refused" } };

function intrudersOf({ harness, queue }: Stage, told: TelemetryEvent[]) {
  const intruders = harness.intruders?.(queue, (event) => told.push(event));
  if (intruders === undefined) throw new Error("passwords needs intruders()");
  return intruders;
}
