import { connect } from "amqplib";
import { type Diary, now } from "./diary.js";
import { digestOf, type Half, halves, topicOf } from "./posting.js";
import type { RunQueues } from "./queues.js";

/** The queue of a process of `ledger`: the keys of one half. Both processes of `billing` share theirs. */
export const ledgerQueue = (run: string, half: Half): string => `${run}.ledger.${half}`;
export const billingQueue = (run: string): string => `${run}.billing`;

/**
 * Makes the queues of a run, and one more that gets everything, in the order in which the broker takes it: whoever
 * listens there knows what was accepted, whatever the relays were told.
 */
export async function rabbitmqQueues(url: string, run: string, diary: Diary): Promise<RunQueues> {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  const tap = `${run}.tap`;
  // One process at a time: the next gets nothing before the broker has back what the last had not acked.
  const single = { "x-single-active-consumer": true };
  const queues = [
    { name: billingQueue(run), wants: halves, more: {} },
    ...halves.map((half) => ({ name: ledgerQueue(run, half), wants: [half], more: single })),
  ];
  for (const half of halves) await channel.assertExchange(topicOf(run, half), "topic");
  await channel.assertQueue(tap, { durable: true });
  for (const half of halves) await channel.bindQueue(tap, topicOf(run, half), "#");
  for (const { name, wants, more } of queues) {
    const options = { "x-queue-type": "quorum", "x-delivery-limit": 1_000_000 };
    await channel.assertQueue(name, { arguments: { ...options, ...more } });
    await channel.assertQueue(`${name}.parked`, { arguments: options });
    for (const half of wants) await channel.bindQueue(name, topicOf(run, half), "Posted");
  }
  let accepted = 0;
  await channel.consume(
    tap,
    (raw) => {
      if (raw === null) return;
      accepted++;
      const at = now();
      const { messageId, type, headers = {} } = raw.properties;
      const digest = digestOf(String(type), headers.note, raw.content);
      const message = { id: String(messageId), key: String(headers["cloudEvents:partitionkey"]), digest };
      diary.write({ what: "accepted", box: "outbox", message }, at);
    },
    { noAck: true },
  );

  const names = queues.flatMap(({ name }) => [name, `${name}.parked`]);
  return {
    accepted: () => accepted,
    async depth() {
      let count = 0;
      for (const name of names) count += (await channel.checkQueue(name)).messageCount;
      return count;
    },
    async remove() {
      for (const name of [tap, ...names]) await channel.deleteQueue(name);
      for (const half of halves) await channel.deleteExchange(topicOf(run, half));
      await connection.close();
    },
  };
}
