import { connect } from "amqplib";

/** Deletes what this example created. A service does not need this: its queues and exchanges are permanent. */
export async function removeTopology(url: string, queue: string, exchange: string): Promise<void> {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  for (const name of [queue, `${queue}.parked`]) await channel.deleteQueue(name);
  await channel.deleteExchange(exchange);
  await connection.close();
}
