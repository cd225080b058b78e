import type { PostboxError } from "../errors.js";
import { scrub } from "../internal/scrub.js";
import type { Telemetry, TransportEnd } from "../telemetry/events.js";
import type { TransportHealth } from "../transport.js";

/** Tracks the state of successive connections, and reports every change. */
export interface ConnectionWatch {
  connected(): void;
  /** The broker accepts no messages on it, for this reason. */
  blocked(reason: string): void;
  unblocked(): void;
  /** It was lost, or could not be opened. */
  lost(error: PostboxError, retryInMs?: number): void;
  /** It was closed on purpose. */
  closed(): void;
  /** Why the broker accepts no messages at the moment. */
  readonly blockedBy: string | undefined;
  health(): TransportHealth;
}

/**
 * Tracks one end of a transport's connection: reports its changes to telemetry and answers its health.
 *
 * @example
 * ```ts
 * const about = { transport: "mine", end: "sender", whose: "shop", place: "my://localhost" } as const;
 * const watch = watchConnection(about, telemetry);
 * watch.connected();
 * ```
 */
export function watchConnection(about: TransportEnd, telemetry: Telemetry): ConnectionWatch {
  let blockedBy: string | undefined;
  let health: TransportHealth = { status: "idle", since: new Date() };

  function become(status: TransportHealth["status"], failure?: PostboxError): void {
    const at = new Date();
    const lastFailure = failure ? { code: failure.code, text: scrub(failure.message), at } : health.lastFailure;
    blockedBy = undefined;
    // After repeated failures, a connection has been down since the first one.
    const since = status === health.status ? health.since : at;
    health = { status, since, ...(lastFailure && { lastFailure }) };
  }

  return {
    connected() {
      become("connected");
      telemetry({ name: "transport.connected", ...about });
    },
    blocked(reason) {
      if (blockedBy !== undefined) return;
      become("blocked");
      blockedBy = reason;
      telemetry({ name: "transport.blocked", ...about, reason });
    },
    unblocked() {
      if (blockedBy === undefined) return;
      become("connected");
      telemetry({ name: "transport.unblocked", ...about });
    },
    lost(error, retryInMs) {
      become("down", error);
      telemetry({ name: "transport.lost", ...about, error, ...(retryInMs !== undefined && { retryInMs }) });
    },
    closed: () => become("idle"),
    get blockedBy() {
      return blockedBy;
    },
    health: () => health,
  };
}

const badness = ["idle", "connected", "blocked", "down"] as const;

/**
 * The worst state among several connections.
 *
 * @example
 * ```ts
 * const [first, second] = [rabbitmqSender({ url: "amqp://one" }), rabbitmqSender({ url: "amqp://two" })];
 * const health = worst([first.health(), second.health()]);
 * ```
 */
export function worst(all: readonly TransportHealth[]): TransportHealth | undefined {
  return all.toSorted((a, b) => badness.indexOf(b.status) - badness.indexOf(a.status))[0];
}
