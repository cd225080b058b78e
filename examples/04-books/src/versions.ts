import { createPublisher, createRouter, upcastFrom, withUpcast } from "postbox";
import { memoryBroker } from "postbox/memory";
import * as v1 from "./gen/example/books/v1/books_postbox.js";
import * as v2 from "./gen/example/books/v2/books_postbox.js";
import { until } from "./until.js";

const broker = memoryBroker();

const BookCreated = withUpcast(v2.BookCreated, [
  upcastFrom(v1.BookCreated, ({ id, title, author, priceCents }) => ({
    id,
    title,
    authors: [author],
    priceCents,
    currency: "EUR",
  })),
]);

const router = createRouter("books-consumer").on(BookCreated, (book, { message }) => {
  console.log(`${message.type}: ${book.authors.join(" and ")}, ${book.priceCents} ${book.currency}`);
});
await router.start(broker.receiver());

const publisher = createPublisher(broker.sender(), { source: "/books-service" });
await v1.createBooksPublisher(publisher).bookCreated({ id: "123", author: "Alan Donovan", priceCents: 3_499n });
await v2.createBooksPublisher(publisher).bookCreated({
  id: "124",
  authors: ["Alan Donovan", "Brian Kernighan"],
  priceCents: 3_499n,
  currency: "USD",
});

await until(() => broker.depth("books-consumer") === 0);
await router.stop();
