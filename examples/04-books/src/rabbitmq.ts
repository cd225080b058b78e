import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { createPublisher, createRouter } from "postbox";
import { rabbitmqReceiver, rabbitmqSender } from "postbox/rabbitmq";
import { BookCreated, books, createBooksPublisher } from "./gen/example/books/v1/books_postbox.js";
import { removeTopology, route } from "./own-topology.js";
import { until } from "./until.js";

const url = process.env.AMQP_URL ?? "amqp://guest:guest@127.0.0.1:5672";
const queue = `books-consumer-${process.pid}`;

const sender = rabbitmqSender({ url, route });
await sender.setup(books.events);

let handled = 0;
const router = createRouter("books-consumer").on(BookCreated, ({ title, createdAt }, { message }) => {
  const when = createdAt && timestampDate(createdAt).toISOString();
  console.log(`${message.datacontenttype}, ${message.data.byteLength} bytes: ${title}, ${when}`);
  handled++;
});
await router.start(rabbitmqReceiver({ url, queue, route }));

const publisher = createPublisher(sender, { source: "/books-service" });
const book = {
  id: "123",
  title: "The Go Programming Language",
  createdAt: timestampFromDate(new Date("2026-01-31T12:00:00Z")),
};
const booksPublisher = createBooksPublisher(publisher);
// Publishing an unroutable message fails, so this retries until the consumer's queue is bound.
await until(() =>
  booksPublisher
    .bookCreated(book)
    .then(() => true)
    .catch(() => false),
);
await booksPublisher.bookCreated(book, { contentType: "application/json" });

await until(() => handled === 2);
await router.stop();
await sender.close();
await removeTopology(url, queue);
