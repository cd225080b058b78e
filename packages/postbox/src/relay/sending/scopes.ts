import { reliable } from "../../backoff.js";
import { PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";
import type { Sender } from "../../transport.js";
import type { DrainContext } from "../context.js";

export interface ScopesOptions extends Pick<DrainContext, "boxName" | "backoff" | "runtime" | "telemetry"> {
  readonly sender: Pick<Sender, "name" | "scopeOf">;
}

interface Closed {
  failures: number;
  until: number;
  readonly error: PostboxError;
}

/**
 * Tracks the parts of a broker that can be unavailable by themselves: a topic, a partition, a destination. Messages to
 * such a part wait, without spending an attempt, until it is tried again after a growing delay. All other messages are
 * sent.
 */
export interface Scopes {
  /** Why a message cannot be sent now, and for how long; undefined if it can. */
  closedTo(message: Message): { readonly error: PostboxError; readonly retryInMs: number } | undefined;
  /** A message was sent: its destination is available again. */
  sent(message: Message): void;
  /** The sender could not reach the destination of a message. Returns how long to wait. */
  failed(message: Message, error: Error): number;
}

/** With this many closed scopes, those whose delay is over are forgotten. */
const most = 1_000;

export function createScopes({ sender, boxName: box, runtime, telemetry, ...options }: ScopesOptions): Scopes {
  const closed = new Map<string, Closed>();
  const backoff = reliable(options.backoff, (error) =>
    telemetry({ name: "relay.failed", box, error: PostboxError.from(error), retryInMs: 0 }),
  );

  /** Undefined if the message has no scope, or it cannot be determined. Then the message waits alone. */
  function scopeOf(message: Message): string | undefined {
    if (sender.scopeOf === undefined) return message.topic;
    try {
      return sender.scopeOf(message);
    } catch {
      return undefined;
    }
  }

  function forgetOld(now: number): void {
    if (closed.size < most) return;
    for (const [scope, { until }] of closed) if (until < now) closed.delete(scope);
  }

  return {
    closedTo(message) {
      // The fast path: usually, every scope is available.
      if (closed.size === 0) return undefined;
      const scope = scopeOf(message);
      const found = scope === undefined ? undefined : closed.get(scope);
      if (found === undefined) return undefined;
      const retryInMs = found.until - runtime.monotonic();
      return retryInMs > 0 ? { error: found.error, retryInMs } : undefined;
    },
    sent(message) {
      if (closed.size === 0) return;
      const scope = scopeOf(message);
      if (scope === undefined || !closed.delete(scope)) return;
      telemetry({ name: "scope.available", box, sender: sender.name, scope });
    },
    failed(message, thrown) {
      const scope = scopeOf(message);
      if (scope === undefined) return backoff(1, runtime.random);
      const now = runtime.monotonic();
      const known = closed.get(scope);
      // Messages that were in flight together count as one failure.
      if (known !== undefined && known.until > now) return known.until - now;
      const failures = (known?.failures ?? 0) + 1;
      const retryInMs = backoff(failures, runtime.random);
      const error = PostboxError.from(thrown, "publish-failed");
      forgetOld(now);
      closed.set(scope, { failures, until: now + retryInMs, error });
      telemetry({ name: "scope.unavailable", box, sender: sender.name, scope, retryInMs, error });
      return retryInMs;
    },
  };
}
