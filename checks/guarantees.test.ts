import { expect, it } from "vitest";
import { mutants } from "../simulation/src/mutants.js";
import { tableOf } from "./snippets.js";

it("the page of guarantees names each guard that the simulation can remove", () => {
  const guards = tableOf("docs/guarantees.md", "without this guard").map(([guard]) => guard);
  expect(guards.sort()).toEqual(mutants.map(({ guard }) => guard).sort());
});
