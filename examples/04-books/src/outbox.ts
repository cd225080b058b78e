import { createOutbox, createRelay, createRouter, inbox, transaction } from "postbox";
import { connectStore } from "postbox/connect";
import { rabbitmqReceiver, rabbitmqSender } from "postbox/rabbitmq";
import { books, createBooksPublisher, onBookCreated } from "./gen/example/books/v1/books_postbox.js";
import { removeTopology, route } from "./own-topology.js";
import { until } from "./until.js";

const url = process.env.AMQP_URL ?? "amqp://guest:guest@127.0.0.1:5672";
const queue = `shelves-${process.pid}`;

// A PostgreSQL inside this process. Pass the postgres://… URL of yours instead.
const database = await connectStore("pglite:");
if (database.kind !== "postgres") throw new Error("this example needs a database");
const { store, pool } = database;
await store.migrate();
await pool.query("create table books (id text primary key, title text not null)");
await pool.query("create table shelves (book_id text not null, title text not null)");

const outbox = createOutbox(store, { source: "/books-service" });

async function createBook(book: { id: string; title: string; author: string }) {
  await store.transaction(async (tx) => {
    await createBooksPublisher(outbox.in(tx)).bookCreated(book);
    await tx.query("insert into books values ($1, $2)", [book.id, book.title]);
  });
}

const sender = rabbitmqSender({ url, route });
await sender.setup(books.events);
const relay = createRelay(store, sender, { pollIntervalMs: 50 });

const router = createRouter("shelves").use(transaction(store)).use(inbox(store));
onBookCreated(router, async (book, { tx }) => {
  await tx.query("insert into shelves values ($1, $2)", [book.id, book.title]);
});

await router.start(rabbitmqReceiver({ url, queue, route }));
await relay.start();

await createBook({ id: "123", title: "The Go Programming Language", author: "Alan Donovan" });
// The id is taken, so the insert fails: neither the row nor the message is stored.
await createBook({ id: "123", title: "Another", author: "Somebody" }).catch((error) => console.log(error.message));
await createBook({ id: "124", title: "Programming in Scala", author: "Martin Odersky" });

const shelves = async () => (await pool.query("select * from shelves order by book_id")).rows;
await until(async () => (await shelves()).length === 2);
for (const { book_id, title } of await shelves()) console.log(`on the shelf: ${book_id}, ${title}`);

await Promise.all([relay.stop(), router.stop()]);
await database.close();
await removeTopology(url, queue);
