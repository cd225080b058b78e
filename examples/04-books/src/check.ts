import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";

/** The expected output of each program. */
const stories: Readonly<Record<string, string>> = {
  memory: `created: The Go Programming Language by Alan Donovan, 3499 cents
removed: 123, sold out
`,
  versions: `example.books.v1.BookCreated: Alan Donovan, 3499 EUR
example.books.v2.BookCreated: Alan Donovan and Brian Kernighan, 3499 USD
`,
  rabbitmq: `application/protobuf, 42 bytes: The Go Programming Language, 2026-01-31T12:00:00.000Z
application/json, 114 bytes: The Go Programming Language, 2026-01-31T12:00:00.000Z
`,
  "beside-protoevent": `The Go Programming Language, as application/proto from /books-service, for north
Go in Practice, as application/proto from books-service-in-go, for south
`,
  outbox: `duplicate key value violates unique constraint "books_pkey"
on the shelf: 123, The Go Programming Language
on the shelf: 124, Programming in Scala
`,
};

let failed = false;
for (const [program, story] of Object.entries(stories)) {
  const path = join(import.meta.dirname, `${program}.js`);
  const { stdout } = await promisify(execFile)(process.execPath, [path], { timeout: 60_000 });
  const same = stdout === story;
  failed ||= !same;
  console.log(`${same ? "✓" : "✗"} ${program}\n${stdout}`);
}
process.exitCode = failed ? 1 : 0;
