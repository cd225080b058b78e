import type { ChannelModel } from "amqplib";
import type { PostboxError } from "../../errors.js";
import { scrub } from "../../internal/scrub.js";
import type { Telemetry, TransportEnd } from "../../telemetry/events.js";
import type { TransportHealth } from "../../transport.js";

/** Knows how one connection after the other is, and tells of every change. */
export interface Watch {
  /** It stands. From now on its broker may block it. */
  connected(connection: ChannelModel): void;
  /** There is another one beside it, whose broker may block that. */
  beside(connection: ChannelModel): void;
  /** It does not: it was lost, or could not be had. */
  lost(error: PostboxError, retryInMs?: number): void;
  /** It was ended on purpose. */
  closed(): void;
  /** Why the broker takes nothing at the moment. */
  readonly blocked: string | undefined;
  health(): TransportHealth;
}

export function createWatch(about: Omit<TransportEnd, "transport">, telemetry: Telemetry): Watch {
  return watchOf({ transport: "rabbitmq", ...about }, telemetry);
}

function watchOf(about: TransportEnd, telemetry: Telemetry): Watch {
  const standing = new Set<ChannelModel>();
  let blocked: string | undefined;
  let health: TransportHealth = { status: "idle", since: new Date() };

  const become = (status: TransportHealth["status"], failure?: PostboxError) => {
    const at = new Date();
    const lastFailure = failure ? { code: failure.code, text: scrub(failure.message), at } : health.lastFailure;
    // One that fails again and again has been down since the first time.
    const since = status === health.status ? health.since : at;
    health = { status, since, ...(lastFailure && { lastFailure }) };
  };
  const ended = () => {
    standing.clear();
    blocked = undefined;
  };
  const unblock = (connection: ChannelModel) => {
    if (!standing.has(connection) || blocked === undefined) return;
    blocked = undefined;
    become("connected");
    telemetry({ name: "transport.unblocked", ...about });
  };
  const follow = (connection: ChannelModel) => {
    standing.add(connection);
    connection.on("blocked", (reason) => {
      if (!standing.has(connection) || blocked !== undefined) return;
      blocked = reason;
      become("blocked");
      telemetry({ name: "transport.blocked", ...about, reason });
    });
    connection.on("unblocked", () => unblock(connection));
  };

  return {
    connected(connection) {
      ended();
      follow(connection);
      become("connected");
      telemetry({ name: "transport.connected", ...about });
    },
    beside(connection) {
      follow(connection);
      connection.on("close", () => {
        unblock(connection);
        standing.delete(connection);
      });
    },
    lost(error, retryInMs) {
      ended();
      become("down", error);
      telemetry({ name: "transport.lost", ...about, error, ...(retryInMs !== undefined && { retryInMs }) });
    },
    closed() {
      ended();
      become("idle");
    },
    get blocked() {
      return blocked;
    },
    health: () => health,
  };
}

const badness = ["idle", "connected", "blocked", "down"] as const;

/** That of the one that is worst off. */
export function worst(all: readonly TransportHealth[]): TransportHealth | undefined {
  return all.toSorted((a, b) => badness.indexOf(b.status) - badness.indexOf(a.status))[0];
}
