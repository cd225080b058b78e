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
 * Derives the names from the file name, which is unique within a package: `example/books/v1/book_shop.proto` becomes
 * `bookShop`. As in protoc-gen-es, a word that JavaScript reserves gets a `$`.
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

/** Parameters of generated functions, which an event must not shadow, and names that no module may define. */
const taken = new Set(["publisher", "data", "options", "await", "eval", "arguments"]);

/** `BookCreated`, from a name without its trailing `Event`. */
export function eventName(name: string): string {
  return taken.has(name) ? `${name}$` : safeIdentifier(name);
}

/**
 * `bookCreated`. An object with a `then` method would be treated as a promise, and `__proto__` would set the prototype.
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
