import { connect } from "amqplib";

/** Only an example leaves nothing behind: queues and exchanges are there to stay. */
export async function removeTopology(url: string, queue: string, exchange: string): Promise<void> {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  for (const name of [queue, `${queue}.parked`]) await channel.deleteQueue(name);
  await channel.deleteExchange(exchange);
  await connection.close();
}
