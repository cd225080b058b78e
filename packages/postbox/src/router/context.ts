import type { Draft } from "../event/define-event.js";
import type { Runtime } from "../internal/runtime.js";
import type { Message } from "../message/message.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Kept, Origin } from "../transport.js";

/** What every handler and middleware finds. Middleware adds to it; each addition has a name of its own. */
export interface BaseContext {
  /**
   * The message as it arrived, also of an older type; the handler's first argument is its data, decoded, upcast and
   * validated.
   */
  readonly message: Message;
  /** 1 for the first delivery. */
  readonly attempt: number;
  /** The router's name. */
  readonly consumer: string;
  /** The handler's name; the type of its event where it has none. */
  readonly handler: string;
  /** Where the broker had the message, as far as it says. */
  readonly origin?: Origin;
  /** Of what an inbox keeps: the inbox's own affair. */
  readonly kept?: Kept;
  /**
   * Aborted when the handler should give up: a timeout, the message's expiry, or the end of a graceful stop. Without an
   * inbox, also when the broker takes the message back.
   */
  readonly signal: AbortSignal;
  readonly telemetry: Telemetry;
  /** @experimental Time, chance and failpoints. */
  readonly runtime: Runtime;
}

/** Messages that a handler wants to be published. */
export type Outputs = readonly Draft[];

/** There is a transaction around the handler: `tx` is the handle of the store's own library. */
export interface InTransaction<Tx> {
  readonly tx: Tx;
}

/** Somebody publishes what the handler returns. */
export interface WithOutputs {
  readonly outputs: true;
}

/** Nobody publishes what the handler returns: `unpublished` says why, and what to do. */
export interface WithoutOutputs<Why extends string = string> {
  readonly unpublished: Why;
}

/** What the handler returns goes straight to the broker, after everything inside has committed. */
export interface PublishesOutputs extends WithOutputs {
  readonly published: true;
}

/**
 * With `ack: "manual"`, the handler settles its message itself, once, now or after it returned; a second time throws
 * `delivery-settled`. Until then the message counts as unsettled, and a receiver hands over only so many of those.
 * A settlement that does not reach the broker is told to telemetry, not thrown: the message comes again.
 */
export interface ManualAck {
  readonly delivery: {
    /** Done: never deliver it again. */
    ack(): Promise<void>;
    /** Failed: deliver it again after `delayMs`, as one more attempt. */
    retry(delayMs: number): Promise<void>;
    /** Set it aside with its reason. */
    park(reason: Error): Promise<void>;
    /** Untried: give it back. */
    release(): Promise<void>;
  };
}

/** With `ack: "forward"`: the message is acked when all that is handed in here has resolved. For `publishOutputs`. */
export interface ForwardAck {
  readonly forward: (published: Promise<unknown>) => void;
}
