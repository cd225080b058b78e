import { testMessage } from "@postbox/testkit";
import { expect, it } from "vitest";
import { checkInbox } from "./inbox-options.js";

it("lets undefined stand for the default", () => {
  const { id, ...defaults } = checkInbox("durableInbox", {}, 100);
  const names = ["id", ...Object.keys(defaults)].filter((name) => name !== "remember");
  const undecided = Object.fromEntries(names.map((name) => [name, undefined]));
  const { id: same, ...checked } = checkInbox("durableInbox", undecided, 100);
  expect(checked).toEqual(defaults);
  expect([id, same].map((of) => of(testMessage("m1")))).toEqual(["m1", "m1"]);
});
