import { type Message, PostboxError, type Sender } from "postbox";
import { type Outcome, TransportDownError } from "postbox/transport";

/** A failure of one message. */
export type SendFault =
  /** The broker is unreachable: no message of the call arrives, and none is reported. */
  | "down"
  /** The connection is lost before this message: it and the later ones do not arrive, and are not reported. */
  | "lost"
  /** The connection is lost after this message: it arrives, but is not reported. Later messages are `lost`. */
  | "unconfirmed"
  /** Fails temporarily. */
  | "failed"
  /** Fails temporarily through no fault of the message, so it spends no attempt. */
  | "waiting"
  /** Its destination is unavailable, while the rest of the broker is reachable. */
  | "unavailable"
  /** Fails permanently. */
  | "rejected"
  /** Dropped on purpose: no message is held back behind it. */
  | "dropped";

/** Decides by the message and how many messages have been sent before it, including retries. */
export type FaultPlan = (message: Message, sentBefore: number) => SendFault | undefined;

/**
 * A sender that fails as planned and otherwise passes messages to `sender`. It keeps order if `sender` does. `scopeOf`
 * defaults to that of `sender`.
 *
 * @example
 * ```ts
 * const sender = faultySender(recordingSender(), (_, sentBefore) => (sentBefore === 0 ? "failed" : undefined));
 * ```
 */
export function faultySender(sender: Sender, plan: FaultPlan, scopeOf = sender.scopeOf): Sender {
  let sentBefore = 0;
  return {
    name: sender.name,
    keepsOrder: sender.keepsOrder,
    ...(scopeOf && { scopeOf }),
    async send(messages, settled, signal) {
      const faults = messages.map((message) => plan(message, sentBefore++));
      if (faults.includes("down")) throw new TransportDownError("connect", "the broker is away, as planned");
      const cut = faults.findIndex((fault) => fault === "lost" || fault === "unconfirmed");
      const passed: number[] = [];
      const heldBack = new Set<string | undefined>();
      for (const [index, message] of messages.entries()) {
        const fault = faults[index];
        if (index === cut && fault === "lost") break;
        const behind = sender.keepsOrder && message.key !== undefined && heldBack.has(message.key);
        const refused = isRefusal(fault) ? fault : behind ? "waiting" : undefined;
        if (refused === undefined) passed.push(index);
        else {
          heldBack.add(message.key);
          settled(index, refusal(refused, message));
        }
        if (index === cut) break;
      }
      const report = (nth: number, outcome: Outcome) => {
        const index = passed[nth] as number;
        if (index !== cut) settled(index, outcome);
      };
      await sender.send(
        passed.map((index) => messages[index] as Message),
        report,
        signal,
      );
      if (cut >= 0) throw new TransportDownError("send", "the connection died, as planned");
    },
    ...(sender.close === undefined ? {} : { close: () => sender.close?.() ?? Promise.resolve() }),
  };
}

const refusals = ["failed", "waiting", "unavailable", "rejected", "dropped"] as const;
type Refusal = (typeof refusals)[number];

function isRefusal(fault: SendFault | undefined): fault is Refusal {
  return (refusals as readonly unknown[]).includes(fault);
}

function refusal(fault: Refusal, { id }: Message): Outcome {
  const error = new PostboxError("publish-failed", `message ${id} was ${fault}, as planned`);
  return fault === "waiting" ? { status: "failed", error, uncounted: true } : { status: fault, error };
}
