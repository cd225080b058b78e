import { type Message, PostboxError, type Receiver, type Sender } from "postbox";
import { type Binding, type MemoryBroker, memoryBroker } from "postbox/memory";
import { type Delivery, type Outcome, TransportDownError } from "postbox/transport";
import type { Chance } from "./chance.js";
import type { Link } from "./link.js";
import { never } from "./process.js";
import { nameOf, type Recorder, sightingOf } from "./recorder.js";
import type { World } from "./world.js";

/** How a broker behaves. Probabilities are per message. */
export interface BrokerWeather {
  readonly refuses: number;
  readonly rejects: number;
  /** No queue takes the message, and its sender was told to drop it or to wait. */
  readonly drops: number;
  readonly waits: number;
  /** The partitions that are unavailable. */
  readonly unavailable: readonly string[];
  /** The connection is lost when this message arrives. The broker may have taken the message before. */
  readonly dies: number;
  /** The broker takes the message, but its confirm is lost. */
  readonly confirmLost: number;
  /** The broker takes the message, but its confirm may arrive after its sender has given up. */
  readonly confirmLate: number;
  /** The broker delivers the message twice. */
  readonly repeats: number;
}

/** What a message does to the process that sends it, each time. */
export type Poison = "kills the process" | "kills the connection";

export interface SimulatedBrokerOptions {
  readonly box: string;
  readonly recorder: Recorder;
  readonly chance: Chance;
  weather(): BrokerWeather;
  poisonOf(message: Message): Poison | undefined;
}

/** The memory broker behind links: messages arrive in order or not at all, and confirms may be lost. */
export class SimulatedBroker {
  readonly #world: World;
  readonly #options: SimulatedBrokerOptions;
  readonly #inner: MemoryBroker;
  readonly #innerSender: Sender;
  /** When the last message of each key was enqueued. The next one of that key is not enqueued before. */
  readonly #queuedAt = new Map<string, number>();
  #onTheirWay = 0;

  constructor(world: World, options: SimulatedBrokerOptions) {
    this.#world = world;
    this.#options = options;
    this.#inner = memoryBroker({ runtime: world.runtime });
    this.#innerSender = this.#inner.sender();
  }

  bind(queue: string, events: readonly Binding[]): void {
    this.#inner.bind(queue, events);
  }

  /** The number of messages that are in one of these queues, or are in flight to it. */
  depth(queues: readonly string[]): number {
    return queues.reduce((sum, queue) => sum + this.#inner.depth(queue), this.#onTheirWay);
  }

  parked(queue: string): readonly string[] {
    return this.#inner.parked(queue).map(({ message }) => message.id);
  }

  /** A sender that uses a link. */
  sender(link: Link, keepsOrder: boolean): Sender {
    const { recorder, poisonOf, chance, weather } = this.#options;
    let arrivesAt = 0;
    // After a lost message nothing else arrives on its connection, until the sender gives up and reconnects.
    let connection = { dead: false };
    return {
      name: "simulated",
      keepsOrder,
      scopeOf: partitionOf,
      connect: (signal) =>
        new Promise((resolve, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason), { once: true });
          link.back(() => {
            if (!link.isHalfOpen) return link.isCut ? reject(down("connect")) : resolve();
          });
        }),
      send: (messages, settled, signal) => {
        if (!link.process.alive) return never();
        return new Promise((resolve, reject) => {
          const own = connection;
          const giveUp = () => {
            if (own.dead && connection === own) connection = { dead: false };
            reject(signal.reason);
          };
          signal.addEventListener("abort", giveUp, { once: true });
          recorder.note(link.process.name, `sends ${messages.map(nameOf).join(", ")}`);
          if (link.isCut) return link.back(() => reject(down("connect")));
          let broken = false;
          let left = messages.length;
          const heldBack = new Set<string>();
          const isSwallowed = () => {
            if (!link.isHalfOpen && !own.dead) return false;
            own.dead = true;
            recorder.meet("a connection was half open");
            return true;
          };
          const breakDown = () => {
            broken = true;
            link.back(() => reject(down("send")));
          };
          const confirm = (index: number, outcome: Outcome) =>
            link.back(() => {
              if (isSwallowed()) return;
              if (signal.aborted && outcome.status === "sent") recorder.meet("a confirm came after it was given up");
              settled(index, outcome);
              if (--left === 0) resolve();
            });
          for (const [index, message] of messages.entries()) {
            // Messages of one connection arrive in order. At the same moment, chance would decide.
            arrivesAt = Math.max(arrivesAt + 0.001, this.#world.now + link.travel());
            this.#onTheirWay++;
            this.#world.at(arrivesAt - this.#world.now, () => {
              this.#onTheirWay--;
              if (broken) return;
              if (isSwallowed()) return;
              if (link.isCut) return breakDown();
              const poison = poisonOf(message);
              if (poison !== undefined) {
                recorder.meet("a message killed who sent it");
                recorder.record({ what: "fault", kind: poison });
                if (poison === "kills the process") link.process.die();
                return breakDown();
              }
              const { key } = message;
              const outcome =
                keepsOrder && key !== undefined && heldBack.has(key) ? waits("held back") : this.#take(message);
              if (outcome === "dies") return breakDown();
              if (outcome === "confirm lost") {
                recorder.meet("a confirm got lost");
                return;
              }
              if (outcome.status !== "sent") recorder.note("", `${outcome.status} ${nameOf(message)}`);
              if (outcome.status !== "sent" && key !== undefined) heldBack.add(key);
              const { confirmLate } = weather();
              const lateMs = confirmLate > 0 && chance.is(confirmLate) ? chance.between(0, 2_000) : 0;
              if (lateMs > 0) this.#world.at(lateMs, () => confirm(index, outcome));
              else confirm(index, outcome);
            });
          }
        });
      },
    };
  }

  #take(message: Message): Outcome | "dies" | "confirm lost" {
    const { chance, weather, recorder, box } = this.#options;
    const { refuses, rejects, drops, waits: unrouted, unavailable, dies, confirmLost, repeats } = weather();
    if (unavailable.includes(partitionOf(message))) {
      recorder.meet("a partition was unavailable");
      return { status: "unavailable", error: new PostboxError("transport-down", "its partition has no leader") };
    }
    if (chance.is(refuses)) return failed("refused for now");
    if (chance.is(rejects))
      return { status: "rejected", error: new PostboxError("publish-failed", "refused for good") };
    if (drops > 0 && chance.is(drops)) {
      return { status: "dropped", error: new PostboxError("unroutable", "no queue takes it") };
    }
    if (unrouted > 0 && chance.is(unrouted)) return waits("no queue takes it yet");
    const dying = chance.is(dies);
    if (dying && chance.is(0.5)) return "dies";
    recorder.record({ what: "accepted", box, message: sightingOf(message) });
    for (let copies = chance.is(repeats) ? 2 : 1; copies > 0; copies--) this.#enqueue(message);
    if (dying) return "dies";
    return chance.is(confirmLost) ? "confirm lost" : { status: "sent" };
  }

  /** Enqueues a message some time after the broker took it: keys overtake each other, messages of one key do not. */
  #enqueue(message: Message): void {
    const name = message.key ?? message.id;
    const at = Math.max(this.#queuedAt.get(name) ?? 0, this.#world.now + this.#options.chance.between(0, 5));
    this.#queuedAt.set(name, at + 0.001);
    this.#onTheirWay++;
    this.#world.at(at - this.#world.now, () => {
      this.#onTheirWay--;
      void this.#innerSender.send([message], () => {}, new AbortController().signal);
    });
  }

  /**
   * A receiver that uses a link and reconnects when its connection is lost. `connected` receives a function that cuts
   * the connection.
   */
  receiver(link: Link, connected: (die: () => void) => void): Receiver {
    const { recorder, chance } = this.#options;
    const inner = this.#inner;
    const { process } = link;
    return {
      name: "simulated",
      async receive(subscription, signal) {
        while (!signal.aborted) {
          const receiver = inner.receiver();
          const die = () => receiver.crash();
          connected(die);
          process.onDeath(() =>
            link.world.at(chance.is(0.2) ? chance.between(500, 3_000) : chance.between(0, 20), die),
          );
          await receiver.receive(
            {
              ...subscription,
              deliver: (delivery) =>
                new Promise((resolve, reject) =>
                  link.back(() => {
                    recorder.record({
                      what: "delivered",
                      consumer: subscription.consumer,
                      message: sightingOf(delivery.message),
                    });
                    subscription.deliver(overLink(delivery, link)).then(resolve, reject);
                  }),
                ),
            },
            signal,
          );
          if (!process.alive) return never();
          if (!signal.aborted) await process.sleep(chance.between(1, 50));
        }
      },
    };
  }
}

/** The answers to a delivery travel, too: if the consumer crashes meanwhile, the delivery is still settled. */
function overLink(delivery: Delivery, link: Link): Delivery {
  const travel = (verb: () => Promise<void>): Promise<void> => {
    if (!link.process.alive) return never();
    return new Promise((resolve, reject) =>
      link.there(() =>
        verb().then(
          () => link.back(resolve),
          (error: unknown) => link.back(() => reject(error)),
        ),
      ),
    );
  };
  const { message, attempt, redelivered = false } = delivery;
  return {
    message,
    attempt,
    redelivered,
    ack: () => travel(() => delivery.ack()),
    retry: (delayMs, reason) => travel(() => delivery.retry(delayMs, reason)),
    park: (reason) => travel(() => delivery.park(reason)),
    release: () => travel(() => delivery.release()),
  };
}

function down(during: "connect" | "send"): TransportDownError {
  return new TransportDownError(during, "the connection to the simulated broker is gone");
}

/** A failure that spends no attempt. */
function waits(text: string): Outcome {
  return { status: "failed", error: new PostboxError("publish-failed", text), uncounted: true };
}

function failed(text: string): Outcome {
  return { status: "failed", error: new PostboxError("publish-failed", text) };
}

/** Returns one of two topics: messages of one type go to both, and so do messages of one key. */
function partitionOf({ key, type }: Message): string {
  return `partition ${[...(key ?? type)].reduce((sum, character) => sum + character.charCodeAt(0), 0) % 2}`;
}
