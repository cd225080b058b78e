import type { HealthProblem } from "../health.js";
import type { RunsReceiver } from "../router/router.js";
import { duration } from "../stores/figures.js";
import type { Sender } from "../transport.js";

/** A sender or receiver has no connection, or its broker accepts nothing on it. */
export type TransportProblem = Extract<HealthProblem, { readonly code: `transport-${string}` }>;

/** The problems of a service's connections to its broker. */
export function transportProblems(
  sender: Sender,
  consumers: ReadonlyMap<string, Pick<RunsReceiver, "receiver">>,
): TransportProblem[] {
  return [
    ...problemsOf(sender, { end: "sender" }),
    ...[...consumers].flatMap(([consumer, { receiver }]) =>
      receiver === undefined ? [] : problemsOf(receiver, { end: "receiver", consumer }),
    ),
  ];
}

function problemsOf(
  { name: transport, health }: Pick<Sender, "name" | "health">,
  whose: { readonly end: "sender" } | { readonly end: "receiver"; readonly consumer: string },
): TransportProblem[] {
  const found = health?.();
  if (found === undefined || found.status === "idle" || found.status === "connected") return [];
  const { status, since, lastFailure } = found;
  const forMs = Math.max(0, Date.now() - since.getTime());
  const who = whose.end === "sender" ? `the ${transport} sender` : `the ${transport} receiver of ${whose.consumer}`;
  const text =
    status === "down"
      ? `${who} has had no connection for ${duration(forMs)}: ${lastFailure?.text ?? "it was lost"}; ` +
        `${adviceFor(lastFailure?.text)}`
      : `${who} is connected, but its broker has taken nothing for ${duration(forMs)}; look for its alarms of ` +
        "memory and disk";
  return [{ code: `transport-${status}`, severity: "error", text, transport, since, ...whose }];
}

function adviceFor(failure = ""): string {
  return failure.includes("[transport-refused]")
    ? "it is not tried again by itself: correct the credentials, then start it again"
    : "it is tried again; check the broker and the network";
}
