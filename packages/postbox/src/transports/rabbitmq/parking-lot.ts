import type { ChannelModel, GetMessage } from "amqplib";
import { PostboxError } from "../../errors.js";
import { checkOptions, count, text } from "../../options.js";
import { type Confirmation, confirmedPublishing, unroutable } from "./confirms.js";
import { close, connectionRules, openConnection, type RabbitmqConnectionOptions } from "./connection.js";
import { attemptHeader, copyOf, idOf, reasonHeader } from "./copy.js";
import { missing, parkedQueue } from "./topology.js";

export interface RabbitmqParkingLotOptions extends RabbitmqConnectionOptions {
  /** The queue whose messages were parked. */
  readonly queue: string;
}

export interface ReplayParkedOptions {
  /** The most messages to move. */
  readonly limit: number;
}

/** What a queue's consumers have parked. */
export interface RabbitmqParkingLot {
  count(): Promise<number>;
  /**
   * Moves what was parked longest back to the queue, as if it had never been tried; answers how many. What is parked meanwhile stays.
   * Who dies in the middle leaves a message in both places: it comes twice, and an inbox knows it.
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

/** How many are on their way at a time. */
const pageSize = 100;
