import { type Message, PostboxError, type Sender } from "postbox";
import { type Outcome, TransportDownError } from "postbox/transport";

/** What happens to one message, where something does. */
export type SendFault =
  /** The broker is away: nothing of the call arrives, nothing is reported. */
  | "down"
  /** The connection dies before this message: it and the later ones do not arrive, and are not reported. */
  | "lost"
  /** The connection dies after this message: it arrived, but is not reported; the later ones are as in "lost". */
  | "unconfirmed"
  /** Refused for now. */
  | "failed"
  /** Refused for now, and for no fault of its own: no attempt is spent. */
  | "waiting"
  /** What it goes to is unavailable, while the rest of the broker is there. */
  | "unavailable"
  /** Refused for good. */
  | "rejected"
  /** Left out on purpose: nothing is held back behind it. */
  | "dropped";

/** Decides by the message and how many have been sent before it, retries included. */
export type FaultPlan = (message: Message, sentBefore: number) => SendFault | undefined;

/**
 * A sender that fails as planned and otherwise does what `sender` does; it keeps order where that one does. `scopeOf`
 * defaults to that of `sender`.
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
