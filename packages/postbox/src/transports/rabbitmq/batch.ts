import { PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";
import type { Outcome } from "../../transport.js";
import { type AmqpMessage, type ContentMode, toAmqp } from "./amqp-message.js";
import { type Confirmation, unroutable } from "./confirms.js";
import type { Link } from "./link.js";
import type { Route } from "./route.js";

export interface BatchOptions {
  /** Where the broker is, for errors. */
  readonly place: string;
  readonly route: (message: Pick<Message, "topic" | "type">) => Route;
  readonly mode: ContentMode;
  readonly maxMessageBytes: number;
}

/** Messages on their way over one link: each is reported once, and none after the end. */
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
  /** The broker has closed the channel for an exchange that is not there: all that have no outcome have failed. */
  failWithout(reason: string): void;
  /** The broker has closed the channel for this one message: it will never take it. */
  rejectOnly(reason: string): void;
  end(): void;
}

export function createBatch(
  link: Link,
  messages: readonly Message[],
  { place, route, mode, maxMessageBytes }: BatchOptions,
  settled: (index: number, outcome: Outcome) => void,
): Batch {
  const routes = messages.map((message) => route(message));
  const reported = new Uint8Array(messages.length);
  let unreported = messages.length;
  let begun = false;
  let waiting = 0;
  let over = false;
  let wake = () => {};

  function report(index: number, outcome: Outcome): void {
    if (over) return;
    reported[index] = 1;
    unreported--;
    settled(index, outcome);
  }

  /** What can be said of a message before it is sent. */
  function refusal({ id }: Message, { exchange }: Route, missing: ReadonlySet<string>, { content }: AmqpMessage) {
    if (missing.has(exchange)) return failed(noExchange(id, exchange));
    if (content.length <= maxMessageBytes) return undefined;
    const text = `message ${id} has ${content.length} bytes, ${place} takes ${maxMessageBytes}; send a reference instead`;
    return rejected(new PostboxError("message-too-large", text));
  }

  function outcomeOf(how: Exclude<Confirmation, "lost">, { id }: Message, { exchange, routingKey }: Route): Outcome {
    if (how === "routed") return sent;
    if (how === "unroutable") return failed(unroutable(id, exchange, routingKey));
    const text = `${place} could not take message ${id} into all of its queues; it is sent again`;
    return failed(new PostboxError("publish-failed", text));
  }

  function publishOne(index: number, missing: ReadonlySet<string>): void {
    const [message, to] = [messages[index] as Message, routes[index] as Route];
    const amqp = toAmqp(message, mode);
    const refused = refusal(message, to, missing, amqp);
    if (refused !== undefined) {
      report(index, refused);
      return;
    }
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
    exchanges: new Set(routes.map(({ exchange }) => exchange)),
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
    failWithout(reason) {
      for (const [index, message] of messages.entries()) {
        if (reported[index] === 0) report(index, withoutExchange(message, routes[index] as Route, reason));
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

const sent: Outcome = { status: "sent" };

function failed(error: PostboxError): Outcome {
  return { status: "failed", error };
}

function rejected(error: PostboxError): Outcome {
  return { status: "rejected", error };
}

function withoutExchange({ id }: Message, { exchange }: Route, reason: string): Outcome {
  if (reason.includes(`no exchange '${exchange}'`)) return failed(noExchange(id, exchange));
  const text = `message ${id} was on a channel that the broker closed for another one: ${reason}`;
  return { status: "failed", error: new PostboxError("publish-failed", text), uncounted: true };
}

function noExchange(id: string, exchange: string): PostboxError {
  const text = `there is no exchange ${exchange} for message ${id}; start its consumer first, or call sender.setup([event])`;
  return new PostboxError("unroutable", text);
}
