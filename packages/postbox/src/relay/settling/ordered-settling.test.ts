import { testMessage } from "@postbox/testkit";
import { expect, it } from "vitest";
import type { Row, Settlement } from "../../store.js";
import type { Decision } from "../deciding/decide.js";
import { Window } from "../ordering/window.js";
import { createOrderedSettling } from "./ordered-settling.js";

const row = (position: number, more: Partial<Row> = {}): Row => ({
  lane: 1,
  position,
  message: testMessage(`${position}`, { key: "k" }),
  attempts: 0,
  crashes: 0,
  held: false,
  waiting: false,
  ...more,
});

it("checks each failure only a few times, whatever order rows of one key fail in", () => {
  const rows = Array.from({ length: 500 }, (_, index) => row(index + 1));
  let [earliest, asked] = [1, 0];
  const window = {
    hasEarlierOnItsWay({ position }: Row) {
      asked++;
      return earliest < position;
    },
  };
  const stored: number[] = [];
  const add = (decisions: readonly Decision[]) =>
    void stored.push(...decisions.map(({ settlement }) => settlement.row.position));
  const sent = (of: Row) => void stored.push(of.position);
  const ordered = createOrderedSettling({ add, sent }, window);
  for (const of of [...rows].reverse()) {
    ordered.add([{ settlement: { row: of, attempts: 1, to: "wait" } } as Decision]);
    if (of.position === 1) earliest = Number.POSITIVE_INFINITY;
    ordered.landed(of);
  }
  expect(stored).toEqual(rows.map(({ position }) => position));
  expect(asked).toBeLessThan(5 * rows.length);
});

/** A window of a sender that keeps order, with these rows in flight, and the decisions that the settler gets. */
function settling(...rows: readonly Row[]) {
  const window = new Window({ keepsOrder: true });
  window.endRead(window.beginRead(), rows);
  expect(window.take(10, 1_000_000)).toEqual(rows);
  const added: [number, Settlement["to"]][][] = [];
  const add = (decisions: readonly Decision[]) =>
    void added.push(decisions.map(({ settlement }) => [settlement.row.position, settlement.to]));
  const ordered = createOrderedSettling({ add, sent: (of) => void added.push([[of.position, "sent"]]) }, window);
  const became = (of: Row, settlement: Partial<Settlement>) =>
    ({ settlement: { row: of, attempts: 1, ...settlement } }) as Decision;
  return {
    window,
    ordered,
    added,
    sent(of: Row) {
      window.sent(of);
      ordered.sent(of);
    },
    failed(of: Row, as: Partial<Settlement> = { to: "wait" }) {
      const behind = window.failed(of).map((other) => became(other, { to: "wait" }));
      ordered.add([became(of, as), ...behind]);
      ordered.landed(of);
    },
    held: (of: Row) => ordered.add([became(of, { to: "wait" })]),
  };
}

it("stores failures after the outcomes of earlier rows of their key are known, in order", () => {
  const [one, two, three] = [row(1), row(2), row(3)];
  const { failed, sent, held, added } = settling(one, two, three);
  failed(three);
  held(row(4, { held: true }));
  failed(two);
  expect(added).toEqual([]);
  sent(one);
  expect(added).toEqual([
    [[1, "sent"]],
    [
      [2, "wait"],
      [3, "wait"],
      [4, "wait"],
    ],
  ]);
});

it("defers a parked row that holds its key, and no other", () => {
  const [one, two, three] = [row(1), row(2), row(3)];
  const { failed, sent, added } = settling(one, two, three);
  failed(three, { to: "parked", hold: true });
  sent(two);
  expect(added).toEqual([[[2, "sent"]]]);
  sent(one);
  expect(added.slice(1)).toEqual([[[1, "sent"]], [[3, "parked"]]]);
});

it("waits neither for later rows nor for earlier ones that are in `wait`", () => {
  const [one, two, three] = [row(1, { waiting: true }), row(2), row(3)];
  const { failed, added } = settling(one, two, three);
  failed(two);
  expect(added).toEqual([[[2, "wait"]]]);
});

it("forgets the deferred decisions of a lost lane", () => {
  const [one, two] = [row(1), row(2)];
  const { failed, ordered, window, added } = settling(one, two);
  failed(two);
  window.drop(1);
  ordered.drop(1);
  ordered.landed(one);
  expect(added).toEqual([]);
});
