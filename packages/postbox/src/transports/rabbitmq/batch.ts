import { PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";
import type { Outcome } from "../../transport.js";
import { type AmqpMessage, type ContentMode, toAmqp } from "./amqp-message.js";
import { type Confirmation, unroutable } from "./confirms.js";
import type { Link } from "./link.js";
import { checkedRoute, type Route } from "./route.js";

/** What becomes of a message that no queue takes. */
type Unrouted = (message: Message, error: PostboxError) => Outcome;

export interface BatchOptions {
  /** Where the broker is, for errors. */
  readonly place: string;
  readonly route: (message: Pick<Message, "topic" | "type">) => Route;
  readonly mode: ContentMode;
  readonly maxMessageBytes: number;
  readonly unrouted: Unrouted;
}

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
  /** The broker has closed the channel for one exchange: all that have no outcome have failed, and those to it by their own fault. */
  failAt(code: number, reason: string): void;
  /** The broker has closed the channel for a body larger than this: all that have no outcome have failed, and larger ones for good. */
  rejectLarger(maxBytes: number): void;
  /** The broker has closed the channel for this one message: it will never take it. */
  rejectOnly(reason: string): void;
  /** Publishes no more. */
  end(): void;
}

export function createBatch(
  link: Link,
  messages: readonly Message[],
  { place, route, mode, maxMessageBytes, unrouted }: BatchOptions,
  settled: (index: number, outcome: Outcome) => void,
): Batch {
  const routes = messages.map((message) => prepare(message, () => checkedRoute(route, message)));
  const reported = new Uint8Array(messages.length);
  let unreported = messages.length;
  let begun = false;
  let waiting = 0;
  let over = false;
  let wake = () => {};

  /** What is thrown for a message here is that message's own fault: the others go on. */
  function prepare<R>(message: Message, work: () => R): R | Refused {
    try {
      return work();
    } catch (cause) {
      if (cause instanceof PostboxError) return { refused: rejected(cause) };
      const why = cause instanceof Error ? cause.message : String(cause);
      const text = `message ${message.id} cannot be encoded: ${why}; correct the message`;
      return { refused: rejected(new PostboxError("message-invalid", text, { cause })) };
    }
  }

  function report(index: number, outcome: Outcome): void {
    // After the end only a confirmation counts: it saves sending the message again.
    if (over && outcome.status !== "sent") return;
    reported[index] = 1;
    unreported--;
    settled(index, outcome);
  }

  /** What can be said of a message before it is sent. */
  function refusal(message: Message, { exchange }: Route, missing: ReadonlySet<string>, { content }: AmqpMessage) {
    if (missing.has(exchange)) return unrouted(message, noExchange(message.id, exchange));
    return content.length > maxMessageBytes ? tooLarge(message.id, content.length, maxMessageBytes) : undefined;
  }

  function tooLarge(id: string, bytes: number, most: number): Outcome {
    const text = `message ${id} has ${bytes} bytes, ${place} takes ${most}; send a reference instead`;
    return rejected(new PostboxError("message-too-large", text));
  }

  function outcomeOf(how: Exclude<Confirmation, "lost">, message: Message, { exchange, routingKey }: Route): Outcome {
    if (how === "routed") return sent;
    const { id } = message;
    if (how === "unroutable") return unrouted(message, unroutable(id, exchange, routingKey));
    const text = `${place} could not take message ${id} into all of its queues; it is sent again`;
    return failed(new PostboxError("publish-failed", text));
  }

  /** How it is published, or why it is not. */
  function ready(index: number, missing: ReadonlySet<string>): Ready | Refused {
    const [message, to] = [messages[index] as Message, routes[index] as Route | Refused];
    if ("refused" in to) return to;
    const amqp = prepare(message, () => toAmqp(message, mode));
    if ("refused" in amqp) return amqp;
    const refused = refusal(message, to, missing, amqp);
    return refused === undefined ? { message, to, amqp } : { refused };
  }

  function publishOne(index: number, missing: ReadonlySet<string>): void {
    const found = ready(index, missing);
    if ("refused" in found) {
      report(index, found.refused);
      return;
    }
    const { message, to, amqp } = found;
    const confirm = (how: Confirmation) => {
      // What is lost keeps no outcome.
      if (how !== "lost") {
        waiting--;
        report(index, outcomeOf(how, message, to));
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
      else report(index, rejected(new PostboxError("message-invalid", `message ${message.id} cannot be sent: ${why}`)));
    }
  }

  return {
    exchanges: new Set(routes.flatMap((to) => ("refused" in to ? [] : [to.exchange]))),
    get begun() {
      return begun;
    },
    get unreported() {
      return unreported;
    },
    async publish(missing) {
      for (let index = 0; index < messages.length && !link.lost && !over; index++) {
        if (!link.publishing.room) {
          await link.publishing.drained();
          if (link.lost || over) return;
        }
        publishOne(index, missing);
      }
    },
    async confirmed() {
      if (waiting === 0 || link.lost) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    },
    failAt(code, reason) {
      for (const [index, to] of routes.entries()) {
        if (reported[index] === 1) continue;
        report(
          index,
          "refused" in to ? to.refused : atExchange(messages[index] as Message, to, code, reason, unrouted),
        );
      }
    },
    rejectLarger(maxBytes) {
      for (const [index, message] of messages.entries()) {
        if (reported[index] === 1) continue;
        const found = ready(index, new Set());
        if ("refused" in found) report(index, found.refused);
        else if (found.amqp.content.length <= maxBytes) report(index, bystander(message, "it was too large"));
        else report(index, tooLarge(message.id, found.amqp.content.length, maxBytes));
      }
    },
    rejectOnly(reason) {
      const text = `${place} does not take message ${messages[0]?.id}: ${reason}; change the message, or the broker's limits`;
      report(0, rejected(new PostboxError("publish-failed", text)));
    },
    end() {
      over = true;
    },
  };
}

interface Ready {
  readonly message: Message;
  readonly to: Route;
  readonly amqp: AmqpMessage;
}

interface Refused {
  readonly refused: Outcome;
}

const sent: Outcome = { status: "sent" };

function failed(error: PostboxError): Outcome {
  return { status: "failed", error };
}

function rejected(error: PostboxError): Outcome {
  return { status: "rejected", error };
}

function atExchange(
  message: Message,
  { exchange, routingKey }: Route,
  code: number,
  reason: string,
  unrouted: Unrouted,
): Outcome {
  const { id } = message;
  // A right to a topic is about one routing key: the others to its exchange are well.
  const topic = /access to topic '(.*)' in exchange '/.exec(reason)?.[1];
  if (reason.includes(`exchange '${exchange}'`) && (topic === undefined || topic === routingKey)) {
    if (code === 404) return unrouted(message, noExchange(id, exchange));
    const text = `the user may not publish message ${id} to exchange ${exchange}: ${reason}; grant the right to write there`;
    return failed(new PostboxError("publish-failed", text));
  }
  return bystander({ id }, reason);
}

function bystander({ id }: Pick<Message, "id">, reason: string): Outcome {
  const text = `message ${id} was on a channel that the broker closed for another one: ${reason}; it is sent again`;
  return { status: "failed", error: new PostboxError("publish-failed", text), uncounted: true };
}

function noExchange(id: string, exchange: string): PostboxError {
  const text = `there is no exchange ${exchange} for message ${id}; start its consumer first, or call sender.setup([event])`;
  return new PostboxError("unroutable", text);
}
