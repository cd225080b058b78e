import { create, toBinary } from "@bufbuild/protobuf";
import { connect } from "amqplib";
import { createPublisher, createRouter } from "postbox";
import type { PublishMiddleware } from "postbox/middleware";
import { rabbitmqReceiver, rabbitmqSender } from "postbox/rabbitmq";
import { BookCreatedEventSchema } from "./gen/example/books/v1/books_pb.js";
import { BookCreated, books, createBooksPublisher, onBookCreated } from "./gen/example/books/v1/books_postbox.js";
import { removeTopology, route } from "./own-topology.js";
import { until } from "./until.js";

const url = process.env.AMQP_URL ?? "amqp://guest:guest@127.0.0.1:5672";
const queue = `beside-protoevent-${process.pid}`;

let handled = 0;
const router = createRouter("books-consumer");
onBookCreated(router, (book, { message }) => {
  console.log(`${book.title}, as ${message.datacontenttype} from ${message.source}, for ${message.extensions.tenant}`);
  handled++;
});
await router.start(rabbitmqReceiver({ url, queue, route, unprefixed: true }));

const asProto: PublishMiddleware = (messages, next) =>
  next(
    messages.map((message) =>
      message.datacontenttype === "application/protobuf"
        ? { ...message, datacontenttype: "application/proto" }
        : message,
    ),
  );

const sender = rabbitmqSender({ url, route });
await sender.setup(books.events);
const publisher = createPublisher(sender, { source: "/books-service", middleware: [asProto] });

// Publishing an unroutable message fails, so this retries until the consumer's queue is bound.
await until(() =>
  createBooksPublisher(publisher)
    .bookCreated({ id: "123", title: "The Go Programming Language" }, { extensions: { tenant: "north" } })
    .then(() => true)
    .catch(() => false),
);

// Publishes the way a Go program with protoevent does.
const connection = await connect(url);
const channel = await connection.createConfirmChannel();
const { exchange, routingKey } = route(BookCreated);
const data = toBinary(BookCreatedEventSchema, create(BookCreatedEventSchema, { id: "124", title: "Go in Practice" }));
channel.publish(exchange, routingKey, Buffer.from(data), {
  type: BookCreated.type,
  contentType: "application/proto",
  headers: {
    "cloudEvents:specversion": "1.0",
    "cloudEvents:id": "0d1f5b43-4a5c-4f0e-9c0e-2b6f1e1c7a55",
    "cloudEvents:source": "books-service-in-go",
    "cloudEvents:time": "2026-01-31T12:00:00Z",
    tenant: "south",
  },
});
await channel.waitForConfirms();
await connection.close();

await until(() => handled === 2);
await router.stop();
await sender.close();
await removeTopology(url, queue);
