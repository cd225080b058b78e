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

it("says how to leave room for renewals", () => {
  expect(() => checkInbox("inbox", { pollIntervalMs: 1_000, leaseMs: 2_000 }, 1_000)).toThrow(
    "[option-invalid] inbox: pollIntervalMs (1000) must be below a third of leaseMs (2000); " +
      "raise leaseMs above 3000, or lower pollIntervalMs",
  );
});
