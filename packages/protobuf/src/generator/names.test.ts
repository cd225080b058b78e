import { expect, it } from "vitest";
import { eventName, methodOf } from "./names.js";

it.each(["await", "eval", "arguments", "class", "options"])("%s, which no module can define, gets a $", (name) => {
  expect(eventName(name)).toBe(`${name}$`);
});

it("makes no promise of a publisher, and changes no prototype", () => {
  expect(methodOf({ name: "Then" })).toBe("then$");
  expect(methodOf({ name: "__proto__" })).toBe("__proto__$");
  expect(methodOf({ name: "BookCreated" })).toBe("bookCreated");
});
