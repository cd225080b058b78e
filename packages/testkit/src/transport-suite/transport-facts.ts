import { randomUUID } from "node:crypto";
import { defineEvent, type EventDefinition, type Message, type Upcaster } from "postbox";
import type { Delivery, MessageInput, Outcome } from "postbox/transport";
import { it } from "vitest";
import { testMessage } from "../messages.js";
import { type Consumer, consume } from "./consume.js";
import type {
  HarnessReceiverOptions,
  TransportFeatures,
  TransportHarness,
  TransportSuiteOptions,
} from "./transport-harness.js";

/** What a fact works with: a broker, one event, and one queue that is bound to it. */
export interface Stage {
  readonly harness: TransportHarness;
  readonly features: TransportFeatures;
  readonly queue: string;
  readonly event: EventDefinition;
  /** A message of `event`. */
  message(id: string, more?: Partial<MessageInput>): Message;
  /** Sends with a new sender and returns the outcomes by index. Throws if one is reported twice. */
  send(...messages: readonly Message[]): Promise<readonly (Outcome | undefined)[]>;
  /** Starts a receiver of `queue`, by default for `event`. It stops when the fact ends. */
  consume(options?: ConsumeOptions): Consumer;
}

export interface ConsumeOptions extends Partial<HarnessReceiverOptions> {
  readonly events?: readonly EventDefinition[];
  readonly accept?: (delivery: Delivery) => Promise<void>;
}

type Proof = (stage: Stage) => Promise<void>;

type Needs = keyof TransportFeatures | readonly (keyof TransportFeatures)[];

/**
 * Registers one fact, which runs on a stage of its own. A fact that needs an unclaimed feature is skipped, and says
 * why.
 */
export interface TransportFact {
  (name: string, prove: Proof): void;
  (name: string, needs: Needs, prove: Proof): void;
}

/**
 * For facts that repeat something a hundred times, and for brokers that start slowly. Single waits have a limit of
 * their own.
 */
const timeoutMs = 120_000;

export function transportFacts(options: TransportSuiteOptions): TransportFact {
  return (name: string, ...rest: [Proof] | [Needs, Proof]) => {
    const [needs, prove] = rest.length === 1 ? [[], rest[0]] : rest;
    const unclaimed = (typeof needs === "string" ? [needs] : needs).filter((each) => !options.features[each]);
    if (unclaimed.length > 0) {
      it.skip(`${name} (not claimed: ${unclaimed.join(", ")})`);
      return;
    }
    it(name, { timeout: timeoutMs }, async () => {
      const harness = await options.create();
      const consumers: Consumer[] = [];
      try {
        await prove(await setStage(harness, options.features, consumers));
      } finally {
        for (const consumer of consumers) await consumer.abandon();
        await harness.close();
      }
    });
  };
}

/** An event that accepts any data. */
export function testEvent(topic: string, name: string, upcast: readonly Upcaster[] = []): EventDefinition {
  return defineEvent({
    type: `${topic}.${name}`,
    upcast,
    schema: { "~standard": { version: 1, vendor: "testkit", validate: (value: unknown) => ({ value }) } },
  });
}

async function setStage(harness: TransportHarness, features: TransportFeatures, consumers: Consumer[]): Promise<Stage> {
  const unique = randomUUID();
  const queue = `queue-${unique}`;
  const event = testEvent(`testkit.t${unique}`, "Happened");
  await harness.bind(queue, [event]);
  return {
    harness,
    features,
    queue,
    event,
    message: (id, more = {}) => testMessage(id, { type: event.type, topic: event.topic, ...more }),
    async send(...messages) {
      const outcomes: (Outcome | undefined)[] = messages.map(() => undefined);
      const report = (index: number, outcome: Outcome) => {
        if (index in outcomes && outcomes[index] === undefined) outcomes[index] = outcome;
        else throw new Error(`the outcome of message ${index} was reported twice, or there is no such message`);
      };
      await harness.sender().send(messages, report, new AbortController().signal);
      return outcomes;
    },
    consume({ accept, events = [event], ...receiverOptions } = {}) {
      const receiver = harness.receiver({ queue, ...receiverOptions });
      const consumer = consume(
        receiver,
        { consumer: receiverOptions.queue ?? queue, events },
        {
          crash: () => harness.crash(receiver),
          interrupt: async () => harness.interrupt?.(receiver),
          ...(accept === undefined ? {} : { accept }),
        },
      );
      consumers.push(consumer);
      return consumer;
    },
  };
}
