import type { DescFile } from "@bufbuild/protobuf";
import { safeIdentifier } from "@bufbuild/protoplugin";
import type { ProtoEvent } from "./proto-event.js";

/** The names that the code of one file exports besides its events. */
export interface FileNames {
  /** `books` */
  readonly service: string;
  /** `BooksPublisher` */
  readonly publisher: string;
  /** `createBooksPublisher` */
  readonly createPublisher: string;
}

/**
 * From the name of the file, which no other file of the package has: `example/books/v1/book_shop.proto` is `bookShop`.
 * A word that JavaScript reserves gets a `$`, as protoc-gen-es does it.
 */
export function namesOf(file: DescFile): FileNames {
  const base = file.name.split("/").at(-1) ?? "";
  const words = base.split(/[^A-Za-z0-9]+/).filter((word) => word !== "");
  const pascal = words.map(upperFirst).join("");
  const safe = /^[A-Za-z]/.test(pascal) ? pascal : `_${pascal}`;
  return {
    service: safeIdentifier(lowerFirst(safe)),
    publisher: `${safe}Publisher`,
    createPublisher: `create${safe}Publisher`,
  };
}

/** What generated functions call their parameters, which must not hide an event; and what no module may define. */
const taken = new Set(["publisher", "data", "options", "await", "eval", "arguments"]);

/** `BookCreated`, of a name without its trailing `Event`. */
export function eventName(name: string): string {
  return taken.has(name) ? `${name}$` : safeIdentifier(name);
}

/**
 * `bookCreated`. An object with a method `then` would be taken for a promise; `__proto__` would be no method, but its
 * prototype.
 */
export function methodOf({ name }: Pick<ProtoEvent, "name">): string {
  const method = lowerFirst(name);
  return method === "then" || method === "__proto__" ? `${method}$` : method;
}

/** `onBookCreated` */
export function registrationOf({ name }: ProtoEvent): string {
  return `on${upperFirst(name)}`;
}

function upperFirst(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

function lowerFirst(word: string): string {
  return word.charAt(0).toLowerCase() + word.slice(1);
}
