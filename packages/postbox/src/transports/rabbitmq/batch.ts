import type { Message } from "../../message/message.js";
import type { Outcome } from "../../transport.js";
import type { Confirmation } from "./confirms.js";
import type { Link } from "./link.js";
import { confirmedOutcome, notTaken, unsendable } from "./outcomes.js";
import { createOutgoing, type OutgoingOptions, type Ready } from "./outgoing.js";

/** Messages in flight over one link: each is reported once, and after the end only as sent. */
export interface Batch {
  readonly exchanges: ReadonlySet<string>;
  /** Whether anything was published: what was not has certainly not arrived. */
  readonly begun: boolean;
  /** How many have no outcome yet. */
  readonly unreported: number;
  /** Publishes everything, as fast as the socket takes it. Resolves when it has, or when the link is lost. */
  publish(missing: ReadonlySet<string>): Promise<void>;
  /** Resolves when nothing waits for its confirm, or when the link is lost. */
  confirmed(): Promise<void>;
  /**
   * The broker has closed the channel for one exchange: all that have no outcome have failed, and those to it by their
   * own fault.
   */
  failAt(code: number, reason: string): void;
  /**
   * The broker has closed the channel for a body larger than this: all that have no outcome have failed, and larger
   * ones for good.
   */
  rejectLarger(maxBytes: number): void;
  /** The broker has closed the channel for this one message: it will never take it. */
  rejectOnly(reason: string): void;
  /** Publishes no more. */
  end(): void;
}

export function createBatch(
  link: Link,
  messages: readonly Message[],
  options: OutgoingOptions,
  settled: (index: number, outcome: Outcome) => void,
): Batch {
  const outgoing = createOutgoing(messages, options);
  const reports = createReports(messages.length, settled);
  let begun = false;
  let waiting = 0;
  let wake = () => {};

  function send(index: number, { message, to, amqp }: Ready): void {
    const confirm = (how: Confirmation) => {
      // What is lost keeps no outcome.
      if (how !== "lost") {
        waiting--;
        reports.add(index, confirmedOutcome(how, message, to, options));
      }
      if (how === "lost" || waiting === 0) wake();
    };
    try {
      link.publishing.publish(to.exchange, to.routingKey, amqp, confirm);
      begun = true;
      waiting++;
    } catch (cause) {
      const { name, message: why } = cause as Error;
      // The client knows that it is closed, or closing, before it says so.
      if (link.lost || name === "IllegalOperationError") link.giveUp("the connection ended");
      // Headers beyond what the protocol can carry.
      else reports.add(index, unsendable(message.id, why));
    }
  }

  return {
    exchanges: outgoing.exchanges,
    get begun() {
      return begun;
    },
    get unreported() {
      return reports.missing;
    },
    async publish(missing) {
      for (let index = 0; index < messages.length && !link.lost && !reports.over; index++) {
        if (!link.publishing.room) {
          await link.publishing.drained();
          if (link.lost || reports.over) return;
        }
        const found = outgoing.ready(index, missing);
        if ("refused" in found) reports.add(index, found.refused);
        else send(index, found);
      }
    },
    async confirmed() {
      if (waiting === 0 || link.lost) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    },
    failAt: (code, reason) => reports.addMissing((index) => outgoing.failedAt(index, code, reason)),
    rejectLarger: (maxBytes) => reports.addMissing((index) => outgoing.failedAsLarger(index, maxBytes)),
    rejectOnly: (reason) => reports.add(0, notTaken(messages[0]?.id, reason, options.place)),
    end: () => reports.end(),
  };
}

/** Which messages have an outcome. After the end only `sent` counts: it saves sending the message again. */
function createReports(count: number, settled: (index: number, outcome: Outcome) => void) {
  const reported = new Uint8Array(count);
  let missing = count;
  let over = false;

  function add(index: number, outcome: Outcome): void {
    if (over && outcome.status !== "sent") return;
    reported[index] = 1;
    missing--;
    settled(index, outcome);
  }

  return {
    add,
    /** An outcome for each message that has none. */
    addMissing(outcomeOf: (index: number) => Outcome): void {
      for (const [index, done] of reported.entries()) if (done === 0) add(index, outcomeOf(index));
    },
    get missing() {
      return missing;
    },
    get over() {
      return over;
    },
    end() {
      over = true;
    },
  };
}
