import type { ChannelModel, GetMessage } from "amqplib";
import { PostboxError } from "../../errors.js";
import { storedError } from "../../internal/stored-error.js";
import { checkOptions, count, text } from "../../options.js";
import { type Confirmation, confirmedPublishing, unroutable } from "./confirms.js";
import { close, connectionRules, openConnection, type RabbitmqConnectionOptions } from "./connection.js";
import { attemptHeader, copyOf, idOf, reasonHeader } from "./copy.js";
import { missing, parkedQueue } from "./topology.js";
import { undecodable } from "./undecodable.js";

export interface RabbitmqParkingLotOptions extends RabbitmqConnectionOptions {
  /** The queue whose messages were parked. */
  readonly queue: string;
}

export interface ReplayParkedOptions {
  /** The most messages to move. */
  readonly limit: number;
}

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

/** What a queue's consumers have parked, and what the broker itself has given up. */
export interface RabbitmqParkingLot {
  count(): Promise<number>;
  /** Reads the messages that were parked first, with their reasons, and leaves them where they are. */
  list(options: ListParkedOptions): Promise<readonly RabbitmqParked[]>;
  /**
   * Moves the messages that were parked first back to the queue, as if they had never been tried; answers how many.
   * What is parked meanwhile stays, and so does a message whose headers cannot be decoded. A crash in the middle leaves
   * a message in both places: it is delivered twice, and an inbox skips the second.
   */
  replay(options: ReplayParkedOptions): Promise<number>;
}

/** The parking lot of a queue, `<queue>.parked`. Each call opens a connection of its own. */
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
        // What was not acked stays.
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
            // It cannot be copied. Unsettled until the channel is closed, it is not in the way of others.
            if (undecodable(raw.properties) !== undefined) continue;
            const confirmed = publish(raw);
            // Whoever waits for an earlier one does not hear of it yet.
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
        // Acks are not answered, but what comes after them is.
        await close(channel);
        return moved;
      });
    },
  };
}

/** A consumer writes its reason into a header; of what the broker gives up, it tells only what kind of end that was. */
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

/** How many are on their way at a time. */
const pageSize = 100;
