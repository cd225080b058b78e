import { expect, it } from "vitest";
import { Call, type Surroundings } from "./call.js";

it("opens the database once, however often a command looks at it", async () => {
  const around = { terminal: {}, env: {}, cwd: "." } as Surroundings;
  const call = new Call(around, { database: "memory:" });
  const first = await call.database();
  expect(await call.database()).toBe(first);
  await call.close();
});
