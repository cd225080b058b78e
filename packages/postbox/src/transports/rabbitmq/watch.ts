import type { ChannelModel } from "amqplib";
import type { Telemetry, TransportEnd } from "../../telemetry/events.js";
import { type ConnectionWatch, watchConnection } from "../connection-watch.js";

/** The state of successive connections. The broker blocks each one by an event of its own. */
export interface Watch extends Pick<ConnectionWatch, "lost" | "closed" | "blockedBy" | "health"> {
  /** It is connected. From now on its broker may block it. */
  connected(connection: ChannelModel): void;
  /** There is a second connection, which its broker may block too. */
  beside(connection: ChannelModel): void;
}

export function createWatch(about: Omit<TransportEnd, "transport">, telemetry: Telemetry): Watch {
  const watch = watchConnection({ transport: "rabbitmq", ...about }, telemetry);
  const standing = new Set<ChannelModel>();
  const unblocked = (connection: ChannelModel) => standing.has(connection) && watch.unblocked();
  const follow = (connection: ChannelModel) => {
    standing.add(connection);
    connection.on("blocked", (reason) => standing.has(connection) && watch.blocked(reason));
    connection.on("unblocked", () => unblocked(connection));
  };

  return {
    connected(connection) {
      standing.clear();
      follow(connection);
      watch.connected();
    },
    beside(connection) {
      follow(connection);
      connection.on("close", () => {
        unblocked(connection);
        standing.delete(connection);
      });
    },
    lost(error, retryInMs) {
      standing.clear();
      watch.lost(error, retryInMs);
    },
    closed() {
      standing.clear();
      watch.closed();
    },
    get blockedBy() {
      return watch.blockedBy;
    },
    health: watch.health,
  };
}
