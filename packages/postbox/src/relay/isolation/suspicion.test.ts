import { testMessage } from "@postbox/testkit";
import { expect, it } from "vitest";
import type { Row } from "../../store.js";
import { createDoubt, createSuspicion } from "./suspicion.js";

const row = (lane: number, position: number): Row => ({
  lane,
  position,
  message: testMessage(`${position}`),
  attempts: 0,
  crashes: 0,
  waiting: false,
  held: false,
});

it("suspects as many rows as may have been in flight in all lanes together, and no others", () => {
  const suspicion = createSuspicion(3);
  suspicion.add([1, 3]);
  const rows = [row(2, 1), row(1, 2), row(3, 3), row(1, 4), row(1, 5), row(3, 6)];
  expect(rows.map((one) => suspicion.mark(one).crashes)).toEqual([0, 1, 1, 1, 0, 0]);
  suspicion.add([3]);
  expect(suspicion.mark(row(3, 7)).crashes).toBe(1);
});

it("suspects nothing that was appended after the lanes were taken", () => {
  const suspicion = createSuspicion(10);
  suspicion.add([1, 2]);
  suspicion.bound([1], 5);
  suspicion.bound([1, 3], 9);
  const rows = [row(1, 5), row(1, 6), row(2, 6), row(3, 6), { ...row(1, 7), crashes: 1 }];
  expect(rows.map((one) => suspicion.mark(one).crashes)).toEqual([1, 0, 1, 0, 1]);
});

it("suspects earlier suspects again, without counting them", () => {
  const suspicion = createSuspicion(1);
  suspicion.add([1, 2, 3]);
  const rows = [
    { ...row(1, 1), crashes: 2 },
    { ...row(2, 2), crashes: 1 },
    row(3, 3),
    row(1, 4),
    { ...row(2, 5), crashes: 1 },
  ];
  expect(rows.map((one) => suspicion.mark(one).crashes)).toEqual([3, 2, 1, 0, 2]);
});

it("counts the first connection loss, then one in five with the same message, until one is sent", () => {
  const doubt = createDoubt();
  const die = (...rows: Row[]) => doubt.died(rows);
  expect(doubt.none).toBe(true);
  expect(die(row(1, 1), row(1, 2))).toBe(true);
  expect(doubt.none).toBe(false);
  const deaths = Array.from({ length: 10 }, () => [die(row(1, 1)), die(row(1, 2))]).flat();
  expect(deaths.flatMap((counts, index) => (counts ? [index] : []))).toEqual([8, 9, 18, 19]);
  doubt.sent();
  expect(doubt.none).toBe(true);
  expect(die(row(1, 1))).toBe(true);
  expect(die(row(1, 1))).toBe(false);
});
