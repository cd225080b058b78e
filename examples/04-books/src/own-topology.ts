import { connect } from "amqplib";
import { BookCreated } from "./gen/example/books/v1/books_postbox.js";

/*
 * Only an example keeps to itself and leaves nothing behind. Without any of this, the exchange is that of the topic,
 * example.books.v1, and it is there to stay, as are the queues.
 */

/** An exchange of this run's own, so that two of them do not meet. */
export function route({ topic, type }: { readonly topic: string; readonly type: string }) {
  return { exchange: `${topic}.${process.pid}`, routingKey: type.slice(type.lastIndexOf(".") + 1) };
}

export async function removeTopology(url: string, queue: string): Promise<void> {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  for (const name of [queue, `${queue}.parked`]) await channel.deleteQueue(name);
  await channel.deleteExchange(route(BookCreated).exchange);
  await connection.close();
}
