import { inspect } from "node:util";
import { expect, it } from "vitest";
import { isConnectionLost } from "./connection-lost.js";
import { lost, notATransaction } from "./open-transaction.js";

it("a handle whose connection is closed says so in its cause, without a stack that leads into the library", () => {
  const error = notATransaction(lost, "pass on tx");
  expect(isConnectionLost(error)).toBe(true);
  expect(inspect(error.cause)).toBe("[Error: Connection terminated before this statement, which was not sent]");
});
