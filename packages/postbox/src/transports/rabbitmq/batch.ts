import type { Message } from "../../message/message.js";
import type { Outcome } from "../../transport.js";
import type { Confirmation } from "./confirms.js";
import type { Link } from "./link.js";
import { confirmedOutcome, notTaken, unsendable } from "./outcomes.js";
import { createOutgoing, type OutgoingOptions, type Ready } from "./outgoing.js";

/** Messages in flight over one link. Each is reported once; after the end, only `sent` is reported. */
export interface Batch {
  readonly exchanges: ReadonlySet<string>;
  /** Whether anything was published. If not, nothing can have arrived. */
  readonly begun: boolean;
  /** How many messages have no outcome yet. */
  readonly unreported: number;
  /** Publishes all messages as fast as the socket accepts them. Resolves when done, or when the link is lost. */
  publish(missing: ReadonlySet<string>): Promise<void>;
  /** Resolves when every publish is confirmed, or when the link is lost. */
  confirmed(): Promise<void>;
  /**
   * The broker has closed the channel because of one exchange: every message without an outcome has failed, and those
   * to that exchange by their own fault.
   */
  failAt(code: number, reason: string): void;
  /**
   * The broker has closed the channel because of a body larger than this: every message without an outcome has failed,
   * and larger ones are rejected.
   */
  rejectLarger(maxBytes: number): void;
  /** The broker has closed the channel because of this one message, which it will never accept. */
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
      // A lost message keeps no outcome.
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
      // The client knows that it is closed, or closing, before it emits the event.
      if (link.lost || name === "IllegalOperationError") link.giveUp("the connection ended");
      // Its headers are larger than the protocol allows.
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

/** Tracks which messages have an outcome. After the end only `sent` counts, which saves sending the message again. */
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
    /** Sets an outcome for each message that has none. */
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
