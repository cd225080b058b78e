import { ConfigError } from "../errors.js";
import type { EventDefinition } from "../event/define-event.js";
import type { OlderType } from "../event/upcast.js";
import type { Codecs } from "../message/codec.js";
import type { Receiver } from "../transport.js";
import { checkAbilities } from "./abilities.js";
import type { AckStrategyName } from "./ack-strategy.js";
import { checkFits } from "./fits.js";
import { createHandle, type Handle, type UntypedHandler } from "./handle.js";
import type { AnyMiddleware } from "./middleware.js";

/** What handles a type: the handler of its event, or of the event that it is upcast to. */
interface Registered {
  readonly event: EventDefinition;
  readonly handler: UntypedHandler;
  readonly older?: OlderType;
}

/** What each ack strategy adds to a handler's context. */
const given: Readonly<Record<AckStrategyName, readonly string[]>> = {
  "on-success": [],
  manual: ["delivery"],
  forward: ["forward"],
};

/** The middleware and the handlers of a router. Throws on wrong use as soon as it is registered. */
export class Registry {
  readonly middleware: AnyMiddleware[] = [];
  readonly #consumer: string;
  readonly #ack: AckStrategyName;
  readonly #registered = new Map<string, Registered>();

  constructor(consumer: string, ack: AckStrategyName) {
    this.#consumer = consumer;
    this.#ack = ack;
  }

  use(next: AnyMiddleware): void {
    if (typeof next?.run !== "function" || !Array.isArray(next.needs)) {
      throw new ConfigError(
        "option-invalid",
        ".use(...) takes a middleware: call its factory, as in .use(inbox(store))",
      );
    }
    if (this.#registered.size > 0) {
      throw new ConfigError("middleware-order", `.use(${next.name}()) after .on(...): register middleware first`);
    }
    checkFits(given[this.#ack], this.middleware, next);
    const other = next.keeper && this.middleware.find(({ keeper }) => keeper !== undefined);
    if (other !== undefined) {
      throw new ConfigError(
        "middleware-order",
        `.use(${next.name}()) beside .use(${other.name}()): one inbox is enough`,
      );
    }
    this.middleware.push(next);
  }

  on(event: EventDefinition, handler: UntypedHandler): void {
    if (typeof event?.validate !== "function" || typeof handler !== "function") {
      throw new ConfigError("option-invalid", ".on(event, handler) takes what defineEvent returned, and a function");
    }
    this.#refuseSecond(event);
    if (this.#ack === "forward" && !this.middleware.some(({ adds }) => adds.includes("published"))) {
      throw new ConfigError(
        "middleware-order",
        'ack: "forward" needs a publisher: .use(publishOutputs(publisher)) before .on(...)',
      );
    }
    this.#registered.set(event.type, { event, handler });
    for (const older of event.upcasts) this.#registered.set(older.type, { event, handler, older });
  }

  #refuseSecond(event: EventDefinition): void {
    const taken = this.#registered.get(event.type);
    if (taken !== undefined) {
      throw new ConfigError(
        "handler-exists",
        taken.older === undefined
          ? `${event.type} has a handler already; do both things in one handler`
          : `${taken.event.type} takes ${event.type} already, by its upcaster; keep one of them`,
      );
    }
    const other = event.upcasts.find(({ type }) => this.#registered.has(type));
    if (other !== undefined) {
      throw new ConfigError(
        "handler-exists",
        `${other.type} has a handler already, and ${event.type} upcasts from it; keep one of them`,
      );
    }
  }

  /** Refuses what is known to be wrong before anything runs on a receiver. */
  check(receiver: Receiver): void {
    if (typeof receiver?.receive !== "function") {
      const text = `router ${this.#consumer}: give the receiver to run on, such as broker.receiver()`;
      throw new ConfigError("option-invalid", text);
    }
    if (this.#registered.size === 0) {
      const text = `router ${this.#consumer} has no handlers; register them with .on(event, handler)`;
      throw new ConfigError("no-handler", text);
    }
    checkAbilities(this.#consumer, receiver, this.middleware);
  }

  /** Including older types that are upcast. */
  events(): Pick<EventDefinition, "type" | "topic">[] {
    return [...this.#registered.values()].map(({ event, older }) => older ?? event);
  }

  handles(codecs: Codecs): Map<string, Handle> {
    return new Map(
      [...this.#registered].map(([type, { event, handler, older }]) => [
        type,
        createHandle(event, handler, this.middleware, codecs, older),
      ]),
    );
  }
}
