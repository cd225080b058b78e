import type { Draft } from "../event/define-event.js";
import type { Runtime } from "../internal/runtime.js";
import type { Message } from "../message/message.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Kept, Origin } from "../transport.js";

/** What every handler and middleware gets. Middleware adds to it, each under names of its own. */
export interface BaseContext {
  /**
   * The message as it arrived, possibly of an older type. The handler's first argument is its data: decoded, upcast and
   * validated.
   */
  readonly message: Message;
  /** 1 for the first delivery. */
  readonly attempt: number;
  /** The router's name. */
  readonly consumer: string;
  /** The handler's name; defaults to the type of its event. */
  readonly handler: string;
  /** Where the message was in the broker, if the broker tells. */
  readonly origin?: Origin;
  /** Set for a message from an inbox's box; only the inbox reads it. */
  readonly kept?: Kept;
  /**
   * Aborted when the handler should give up: on a timeout, at the message's expiry, or at the deadline of a stop.
   * Without an inbox, also when the broker revokes the delivery.
   */
  readonly signal: AbortSignal;
  readonly telemetry: Telemetry;
  /** @experimental Time, randomness and failpoints. */
  readonly runtime: Runtime;
}

/** Messages that a handler wants to be published. */
export type Outputs = readonly Draft[];

/** A transaction surrounds the handler: `tx` is the handle of the store's own library. */
export interface InTransaction<Tx> {
  readonly tx: Tx;
}

/** The handler's outputs are published. */
export interface WithOutputs {
  readonly outputs: true;
}

/** The handler's outputs are not published: `unpublished` says why, and what to do. */
export interface WithoutOutputs<Why extends string = string> {
  readonly unpublished: Why;
}

/** The handler's outputs go straight to the broker, after everything inside has committed. */
export interface PublishesOutputs extends WithOutputs {
  readonly published: true;
}

/**
 * With `ack: "manual"`, the handler settles its message itself, once, before or after it returns; a second settlement
 * throws `delivery-settled`. An unsettled message counts against the receiver's limit. If a settlement does not reach
 * the broker, telemetry reports that, and the message is delivered again.
 */
export interface ManualAck {
  readonly delivery: {
    /** Handled: never deliver it again. */
    ack(): Promise<void>;
    /** Failed: deliver it again after `delayMs`, as another attempt. */
    retry(delayMs: number): Promise<void>;
    /** Parks it with this reason. */
    park(reason: Error): Promise<void>;
    /** Not tried: gives it back. */
    release(): Promise<void>;
  };
}

/**
 * With `ack: "forward"`, the message is acknowledged when everything passed in here has resolved. For `publishOutputs`.
 */
export interface ForwardAck {
  readonly forward: (published: Promise<unknown>) => void;
}
