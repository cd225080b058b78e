import type { DescFile } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import { eventName, methodOf, namesOf } from "./names.js";

it.each(["await", "eval", "arguments", "class", "options"])("%s, which no module can define, gets a $", (name) => {
  expect(eventName(name)).toBe(`${name}$`);
});

it("makes no promise of a publisher, and changes no prototype", () => {
  expect(methodOf({ name: "Then" })).toBe("then$");
  expect(methodOf({ name: "__proto__" })).toBe("__proto__$");
  expect(methodOf({ name: "BookCreated" })).toBe("bookCreated");
});

it.each([
  ["shop/v1/book_shop", "bookShop", "BookShopPublisher", "createBookShopPublisher"],
  ["2fa.events", "_2faEvents", "_2faEventsPublisher", "create_2faEventsPublisher"],
])("names what is made of the file %s, also where it begins with a digit", (name, ...names) => {
  expect(Object.values(namesOf({ name } as DescFile))).toEqual(names);
});
