import { createPublisher, createRouter } from "postbox";
import { memoryBroker } from "postbox/memory";
import { books, createBooksPublisher, onBookCreated, onBookRemoved } from "./gen/example/books/v1/books_postbox.js";
import { until } from "./until.js";

const broker = memoryBroker();
broker.bind("books-consumer", books.events);

const publisher = createPublisher(broker.sender(), { source: "/books-service" });
const booksPublisher = createBooksPublisher(publisher);

await booksPublisher.bookCreated({
  id: "123",
  title: "The Go Programming Language",
  author: "Alan Donovan",
  priceCents: 3_499n,
});
await booksPublisher.bookRemoved({ id: "123" }, { subject: "sold out" });

const router = createRouter("books-consumer");
onBookCreated(router, (book) => {
  console.log(`created: ${book.title} by ${book.author}, ${book.priceCents} cents`);
});
onBookRemoved(router, (book, { message }) => {
  console.log(`removed: ${book.id}, ${message.subject}`);
});
await router.start(broker.receiver());

await until(() => broker.depth("books-consumer") === 0);
await router.stop();
