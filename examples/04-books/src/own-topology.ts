import { connect } from "amqplib";
import { BookCreated } from "./gen/example/books/v1/books_postbox.js";

/*
 * Only an example needs a topology of its own and removes it afterwards. By default, the exchange is named after the
 * topic, example.books.v1, and exchanges and queues are permanent.
 */

/** Routes to an exchange of this process, so that concurrent runs do not receive each other's messages. */
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
