import type { ChannelModel, GetMessage } from "amqplib";
import { PostboxError } from "../../errors.js";
import { storedError } from "../../internal/stored-error.js";
import { checkOptions, count, text } from "../../options.js";
import { type Confirmation, confirmedPublishing, unroutable } from "./confirms.js";
import { close, connectionRules, openConnection, type RabbitmqConnectionOptions } from "./connection.js";
import { attemptHeader, copyOf, idOf, reasonHeader } from "./copy.js";
import { missing, parkedQueue } from "./topology.js";
import { undecodable } from "./undecodable.js";

/** Options of `rabbitmqParkingLot`. */
export interface RabbitmqParkingLotOptions extends RabbitmqConnectionOptions {
  /** The queue whose messages were parked. */
  readonly queue: string;
}

/** Options of `replay` of a parking lot. */
export interface ReplayParkedOptions {
  /** The most messages to move. */
  readonly limit: number;
}

/** Options of `list` of a parking lot. */
export interface ListParkedOptions {
  /** The most messages to read. */
  readonly limit: number;
}

/** A message in the parking lot. */
export interface RabbitmqParked {
  /** Its `messageId`. Absent if it has none, or if its headers cannot be decoded. */
  readonly id?: string;
  /** Why a consumer, or the broker itself, has parked it. */
  readonly reason: string;
}

/** The messages that a queue's consumers have parked, and those that the broker itself has given up. */
export interface RabbitmqParkingLot {
  count(): Promise<number>;
  /** Reads the oldest parked messages with their reasons, and leaves them in place. */
  list(options: ListParkedOptions): Promise<readonly RabbitmqParked[]>;
  /**
   * Moves the oldest parked messages back to the queue, without their attempts, and returns how many it moved. It skips
   * messages that are parked meanwhile, and those whose headers cannot be decoded. A crash may leave a message in both
   * places: it is then delivered twice, and an inbox skips the second delivery.
   */
  replay(options: ReplayParkedOptions): Promise<number>;
}

/**
 * The parking lot of a queue, `<queue>.parked`. Each call opens a connection of its own.
 *
 * @example
 * ```ts
 * const lot = rabbitmqParkingLot({ url: "amqp://localhost", queue: "billing" });
 * for (const parked of await lot.list({ limit: 10 })) console.log(parked);
 * await lot.replay({ limit: 10 });
 * ```
 */
export function rabbitmqParkingLot(options: RabbitmqParkingLotOptions): RabbitmqParkingLot {
  checkOptions("rabbitmqParkingLot", options, { ...connectionRules, queue: text }, ["url", "queue"]);
  const { queue } = options;

  async function connected<R>(work: (connection: ChannelModel) => Promise<R>): Promise<R> {
    const connection = await openConnection(options);
    try {
      return await work(connection);
    } finally {
      await close(connection).catch(() => {});
    }
  }

  const countOn = async (connection: ChannelModel): Promise<number> => {
    const channel = await connection.createChannel();
    channel.on("error", () => {});
    const { messageCount } = await channel.checkQueue(parkedQueue(queue)).catch((error) => {
      throw error.code === 404 ? missing(`queue ${parkedQueue(queue)}`) : error;
    });
    return messageCount;
  };

  return {
    count: () => connected(countOn),

    async list(listOptions) {
      checkOptions("list", listOptions, { limit: count }, ["limit"]);
      return connected(async (connection) => {
        const channel = await connection.createChannel();
        channel.on("error", () => {});
        const parked: RabbitmqParked[] = [];
        const most = Math.min(listOptions.limit, await countOn(connection));
        while (parked.length < most) {
          const raw = await channel.get(parkedQueue(queue));
          if (raw === false) break;
          const { messageId } = raw.properties;
          parked.push({ ...(messageId !== undefined && { id: String(messageId) }), reason: reasonOf(raw) });
        }
        // What is not acknowledged stays.
        await close(channel);
        return parked;
      });
    },

    async replay(replayOptions) {
      checkOptions("replay", replayOptions, { limit: count }, ["limit"]);
      return connected(async (connection) => {
        const most = Math.min(replayOptions.limit, await countOn(connection));
        const channel = await connection.createChannel();
        channel.on("error", () => {});
        const copies = confirmedPublishing(await connection.createConfirmChannel());
        const publish = (raw: GetMessage) =>
          new Promise<Confirmation>((resolve) => {
            const properties = copyOf(raw, { [attemptHeader]: undefined, [reasonHeader]: undefined });
            copies.publish("", queue, { content: raw.content, properties }, resolve);
          });

        let moved = 0;
        for (let more = most > 0; more; ) {
          const page: { readonly raw: GetMessage; readonly confirmed: Promise<Confirmation> }[] = [];
          while (page.length < Math.min(pageSize, most - moved)) {
            const raw = await channel.get(parkedQueue(queue));
            if (raw === false) break;
            // It cannot be copied. It stays unsettled until the channel closes, so that the next ones can be read.
            if (undecodable(raw.properties) !== undefined) continue;
            const confirmed = publish(raw);
            // Awaited later; until then it must not end the process as an unhandled rejection.
            confirmed.catch(() => {});
            page.push({ raw, confirmed });
          }
          for (const { raw, confirmed } of page) {
            const how = await confirmed;
            if (how === "unroutable") throw unroutable(idOf(raw), "", queue);
            if (how !== "routed")
              throw new PostboxError("publish-failed", `RabbitMQ did not take a message into ${queue}`);
            channel.ack(raw);
          }
          moved += page.length;
          more = page.length === pageSize && moved < most;
        }
        // Acknowledgements have no answer, but what follows them has.
        await close(channel);
        return moved;
      });
    },
  };
}

/**
 * A consumer writes its reason into a header. For what it gives up itself, the broker only names the kind of reason.
 */
function reasonOf({ properties }: GetMessage): string {
  const unread = undecodable(properties);
  if (unread !== undefined) return `its headers cannot be decoded: ${unread}`;
  const { [reasonHeader]: own, "x-first-death-reason": broker } = properties.headers ?? {};
  if (typeof own === "string") return storedError(own);
  const known = typeof broker === "string" && Object.hasOwn(brokerReasons, broker) ? brokerReasons[broker] : undefined;
  return known ?? "unknown: another program has put it here";
}

const brokerReasons: Readonly<Record<string, string>> = {
  delivery_limit:
    "RabbitMQ delivered it as often as x-delivery-limit allows without learning an outcome: it may crash its consumers",
  rejected: "a consumer could not copy it, and had RabbitMQ park it",
  expired: "it expired in the queue, by a time to live of the message or of a policy",
  maxlen: "the queue was full",
};

/** How many are in flight at a time. */
const pageSize = 100;
