import { testMessage } from "@postbox/testkit";
import { describe, expect, it } from "vitest";
import type { Row } from "../../store.js";
import { Window } from "./window.js";

let position = 0;
function row(key: string | undefined, more: Partial<Row> = {}): Row {
  const id = `${key}-${++position}`;
  const message = testMessage(id, key === undefined ? {} : { key });
  return { lane: 1, position, message, attempts: 0, crashes: 0, waiting: false, held: false, ...more };
}

function arrive(window: Window, ...rows: Row[]): readonly Row[] {
  return window.endRead(window.beginRead(), rows).held;
}

const take = (window: Window, most = 100) => window.take(most, Number.POSITIVE_INFINITY);

describe("the window", () => {
  it("gives a sender that keeps order a whole key at once, and any other one row at a time", () => {
    const rows = [row("a"), row("a"), row("b"), row(undefined)];
    const ordered = new Window({ keepsOrder: true });
    arrive(ordered, ...rows);
    expect(take(ordered)).toEqual(rows);
    const careful = new Window({ keepsOrder: false });
    arrive(careful, ...rows);
    expect(take(careful)).toEqual([rows[0], rows[2], rows[3]]);
    expect(take(careful)).toEqual([]);
    careful.sent(rows[0] as Row);
    expect(take(careful)).toEqual([rows[1]]);
  });

  it("never has two batches of a key in flight", () => {
    const window = new Window({ keepsOrder: true });
    const [first, second] = [row("a"), row("a")];
    arrive(window, first);
    expect(take(window)).toEqual([first]);
    arrive(window, second);
    expect(take(window)).toEqual([]);
    window.sent(first);
    expect(take(window)).toEqual([second]);
  });

  it("is limited by rows and bytes, but one row always fits", () => {
    const window = new Window({ keepsOrder: true });
    const rows = [row("a"), row("b"), row("c")];
    arrive(window, ...rows);
    expect([window.buffered, window.inFlight, window.inFlightBytes]).toEqual([3, 0, 0]);
    expect(window.take(100, 1)).toEqual([rows[0]]);
    expect(window.take(1, Number.POSITIVE_INFINITY)).toEqual([rows[1]]);
    expect([window.buffered, window.inFlight]).toEqual([1, 2]);
    window.sent(rows[0] as Row);
    window.sent(rows[1] as Row);
    expect([window.inFlight, window.inFlightBytes]).toEqual([0, 0]);
  });

  it("moves rows behind a failure to wait, and those that are read before the failure is stored", () => {
    const window = new Window({ keepsOrder: false });
    const [a1, a2, a3, a4, b1] = [row("a"), row("a"), row("a"), row("a"), row("b")];
    arrive(window, a1, a2, b1);
    take(window);
    expect(window.failed(a1)).toEqual([a2]);
    expect(arrive(window, a3)).toEqual([a3]);
    const early = window.beginRead();
    for (const settled of [a1, a2, a3]) window.settled(settled, "wait");
    // That read began before the hold was stored, so its flag says nothing.
    expect(window.endRead(early, [a4]).held).toEqual([a4]);
    window.settled(a4, "wait");
    const later = row("a");
    expect(arrive(window, later)).toEqual([]);
    expect(take(window)).toContain(later);
  });

  it("trusts a row's `held` even if its key is unknown", () => {
    const held = row("a", { held: true });
    expect(arrive(new Window({ keepsOrder: true }), held)).toEqual([held]);
  });

  it("ignores waiting rows whose hold was set again during the read", () => {
    const window = new Window({ keepsOrder: false });
    const [w1, w2] = [row("a", { waiting: true }), row("a", { waiting: true })];
    arrive(window, w1, w2);
    expect(take(window)).toEqual([w1]);
    const early = window.beginRead();
    expect(window.failed(w1)).toEqual([]);
    expect(arrive(window, w2)).toEqual([]);
    window.settled(w1, "wait");
    // To that read w2 seemed due, but w1 must be sent first.
    expect(window.endRead(early, [w2]).held).toEqual([]);
    expect(take(window)).toEqual([]);
    arrive(window, w1, w2);
    expect(take(window)).toEqual([w1]);
  });

  it("accepts neither known rows again nor rows that were settled during the read", () => {
    const window = new Window({ keepsOrder: true });
    const [a, b] = [row("a"), row("b")];
    arrive(window, a, b);
    arrive(window, a);
    expect(take(window)).toEqual([a, b]);
    const early = window.beginRead();
    window.sent(a);
    window.settled(a, "sent");
    expect(window.known(1, 0, 1000)).toEqual(expect.arrayContaining([a.position, b.position]));
    window.endRead(early, [a, b]);
    expect(take(window)).toEqual([]);
    expect(window.known(1, 0, 1000)).toEqual([b.position]);
  });

  it("accepts no waiting row before the read could see an earlier failed one in `wait`", () => {
    const window = new Window({ keepsOrder: true });
    const [first, second] = [row("a", { waiting: true }), row("a", { waiting: true })];
    arrive(window, first, second);
    take(window);
    // The sender reports the second row first. It is stored and due again before the failure of the first one is.
    window.failed(second);
    window.settled(second, "wait");
    window.failed(first);
    arrive(window, second);
    const early = window.beginRead();
    window.settled(first, "wait");
    window.endRead(early, [first, second]);
    expect(take(window)).toEqual([]);
    arrive(window, first, second);
    expect(take(window)).toEqual([first, second]);
  });

  it("calls `seen` once for each row, when it accepts it", () => {
    const asked: Row[] = [];
    const seen = (one: Row) => {
      asked.push(one);
      return { ...one, crashes: 1 };
    };
    const window = new Window({ keepsOrder: true, seen });
    const a = row("a");
    arrive(window, a);
    arrive(window, a);
    expect(asked).toEqual([a]);
    expect(take(window)).toEqual([{ ...a, crashes: 1 }]);
    // Nor for a row that this read has not brought in yet.
    window.failed(a);
    arrive(window, row("a", { waiting: true }));
    expect(asked).toEqual([a]);
  });

  it("puts rows with an unknown outcome back, before all others of their key", () => {
    const window = new Window({ keepsOrder: true });
    const [a1, a2, a3] = [row("a"), row("a"), row("a")];
    arrive(window, a1, a2);
    take(window);
    arrive(window, a3);
    window.sent(a1);
    window.undecided([a2]);
    expect(take(window)).toEqual([a2, a3]);
  });

  it("moves rows with an unknown outcome to wait if one failed before them in their batch", () => {
    const window = new Window({ keepsOrder: true });
    const [a1, a2, a3] = [row("a"), row("a"), row("a")];
    arrive(window, a1, a2, a3);
    take(window);
    window.failed(a1);
    expect(window.undecided([a2, a3])).toEqual([a2, a3]);
    expect(take(window)).toEqual([]);
  });

  it("moves rows that could overtake a held one, or be overtaken by it, to wait with it", () => {
    const window = new Window({ keepsOrder: true });
    const [w1, a2, held, a4, w5] = [
      row("a", { waiting: true }),
      row("a"),
      row("a", { held: true }),
      row("a"),
      row("a", { waiting: true }),
    ];
    arrive(window, w1, a2, a4, w5);
    expect(arrive(window, held)).toEqual([a2, a4, held]);
    expect(take(window)).toEqual([w1]);
    window.sent(w1);
    // The last one is in `wait` behind them: it is read again.
    expect(take(window)).toEqual([]);
    expect(window.buffered).toBe(0);
  });

  it("moves a row with an unknown outcome to wait if a later one of its key was held meanwhile", () => {
    const window = new Window({ keepsOrder: true });
    const [a1, held] = [row("a"), row("a", { held: true })];
    arrive(window, a1);
    expect(take(window)).toEqual([a1]);
    expect(arrive(window, held)).toEqual([held]);
    expect(window.hasEarlierOnItsWay(held)).toBe(true);
    expect(window.undecided([a1])).toEqual([a1]);
    expect([take(window), window.buffered]).toEqual([[], 0]);
    for (const settled of [a1, held]) window.settled(settled, "wait");
    expect(window.isIdle(1)).toBe(true);
  });

  it("lets no waiting row overtake one with an unknown outcome behind a failure", () => {
    const window = new Window({ keepsOrder: true });
    const [a1, a2, a3] = [row("a"), row("a"), row("a")];
    const waits = (one: Row): Row => ({ ...one, waiting: true });
    arrive(window, a1, a2, a3);
    take(window);
    for (const one of [a1, a3]) {
      window.failed(one);
      window.settled(one, "wait");
    }
    arrive(window, waits(a1), waits(a3));
    expect(window.undecided([a2])).toEqual([a2]);
    expect(take(window)).toEqual([waits(a1)]);
    window.settled(a2, "wait");
    window.sent(waits(a1));
    arrive(window, waits(a2), waits(a3));
    expect(take(window)).toEqual([waits(a2), waits(a3)]);
  });

  it("knows what was held or parked ahead of a row in its batch", () => {
    const window = new Window({ keepsOrder: true });
    const [a1, a2, b1, b2] = [row("a"), row("a"), row("b"), row("b")];
    arrive(window, a1, a2, b1, b2);
    take(window);
    expect(window.ahead(a1)).toBeUndefined();
    window.failed(a1);
    expect(window.ahead(a2)).toBe("held");
    window.parked(b1);
    expect(window.ahead(b2)).toBe("parked");
    window.sent(b2);
    expect(window.ahead(row("b"))).toBeUndefined();
  });

  it("continues a key behind a parked row", () => {
    const window = new Window({ keepsOrder: false });
    const [a1, a2] = [row("a"), row("a")];
    arrive(window, a1, a2);
    take(window);
    window.parked(a1);
    // Not before it is stored: after a crash it would be sent again, behind those.
    expect(take(window)).toEqual([]);
    window.settled(a1, "parked");
    expect(take(window)).toEqual([a2]);
  });

  it("forgets a lost lane: later reports about it change nothing, even if it was regained", () => {
    const window = new Window({ keepsOrder: false });
    const [a1, a2, a3] = [row("a"), row("a"), row("a")];
    arrive(window, a1, a2);
    take(window);
    window.failed(a1);
    window.drop(1);
    expect([window.buffered, window.inFlight, window.inFlightBytes]).toEqual([0, 0, 0]);
    expect(window.isOnItsWay(a1)).toBe(false);
    window.settled(a1, "wait");
    // The rows are read again under another epoch, where a failure must hold the key as always.
    arrive(window, a1, a2);
    expect(take(window)).toEqual([a1]);
    expect(window.failed(a1)).toEqual([a2]);
    window.settled(a2, "wait");
    expect(arrive(window, a3)).toEqual([a3]);
  });

  it("forgets the rows that are not in flight when a lane is drained", () => {
    const window = new Window({ keepsOrder: false });
    const [a1, a2, b1] = [row("a"), row("a"), row(undefined)];
    arrive(window, a1, a2, b1);
    expect(window.take(1, Number.POSITIVE_INFINITY)).toEqual([a1]);
    window.forget(1);
    expect(take(window)).toEqual([]);
    expect([window.buffered, window.inFlight, window.isIdle(1)]).toEqual([0, 1, false]);
    window.sent(a1);
    window.settled(a1, "sent");
    expect(window.isIdle(1)).toBe(true);
    expect(take(window)).toEqual([]);
  });

  it("accepts a waiting row during a read that began before its settle", () => {
    const window = new Window({ keepsOrder: true });
    const [a1, a2] = [row("a"), row("a")];
    arrive(window, a1, a2);
    take(window);
    const slow = window.beginRead();
    window.failed(a1);
    window.failed(a2);
    window.settled(a1, "wait");
    window.settled(a2, "wait");
    const [w1, w2] = [a1, a2].map((each) => ({ ...each, waiting: true })) as [Row, Row];
    arrive(window, w1, w2);
    expect(take(window)).toEqual([w1, w2]);
    // The slow read still brings them as they were.
    expect(window.endRead(slow, [a1, a2])).toEqual({ fresh: 0, held: [] });
  });

  it("sends a suspect alone, and nothing else until its outcome is stored", () => {
    const window = new Window({ keepsOrder: false });
    const [a, b, suspect, c] = [row("a"), row(undefined), row("s", { crashes: 2 }), row("c")];
    arrive(window, a, suspect, b);
    expect(take(window)).toEqual([a, b]);
    arrive(window, c);
    // The others have to land first, and nothing new is sent meanwhile.
    expect(take(window)).toEqual([]);
    window.sent(a);
    window.sent(b);
    expect(take(window)).toEqual([suspect]);
    expect(take(window)).toEqual([]);
    window.sent(suspect);
    expect(take(window)).toEqual([]);
    window.settled(suspect, "sent");
    expect(take(window)).toEqual([c]);
  });

  it("sends other rows before a suspect while the broker may be failing", () => {
    const window = new Window({ keepsOrder: false });
    const [suspect, a] = [row("s", { crashes: 2 }), row("a")];
    const carefully = () => window.take(100, Number.POSITIVE_INFINITY, false);
    arrive(window, suspect, a);
    expect(carefully()).toEqual([a]);
    expect(carefully()).toEqual([]);
    window.sent(a);
    const b = row("b");
    arrive(window, b);
    expect(carefully()).toEqual([b]);
    window.sent(b);
    expect(carefully()).toEqual([suspect]);
    window.undecided([suspect], true);
    expect(take(window)).toEqual([{ ...suspect, crashes: 3 }]);
  });

  it("sends rows without crashes first, then the others in turn, while the broker may be failing", () => {
    const window = new Window({ keepsOrder: false });
    const [once, never, again] = [row("o", { crashes: 1 }), row("n"), row("p", { crashes: 1 })];
    const carefully = () => window.take(1, Number.POSITIVE_INFINITY, false);
    arrive(window, once, never, again);
    expect(carefully()).toEqual([never]);
    window.sent(never);
    expect(carefully()).toEqual([once]);
    window.undecided([once]);
    expect(carefully()).toEqual([again]);
    window.undecided([again]);
    expect(carefully()).toEqual([once]);
    window.sent(once);
    window.settled(once, "sent");
    // All is well again: a single crash may be chance.
    const [more, b] = [row("o", { crashes: 1 }), row("b")];
    arrive(window, more, b);
    expect(new Set(take(window))).toEqual(new Set([again, more, b]));
  });

  it("ends a batch of a key before a suspect, and forgets a suspect with its lane", () => {
    const window = new Window({ keepsOrder: true });
    const [a1, a2, a3] = [row("a"), row("a", { crashes: 2 }), row("a")];
    arrive(window, a1, a2, a3);
    expect(take(window)).toEqual([a1]);
    window.sent(a1);
    expect(take(window)).toEqual([a2]);
    window.drop(1);
    expect(window.inFlight).toBe(0);
    const b = row("b");
    arrive(window, b);
    expect(take(window)).toEqual([b]);
  });

  it("accepts a due row while later rows of its key are being moved to wait", () => {
    const window = new Window({ keepsOrder: true });
    const waiting = row("a", { waiting: true });
    const behind = row("a", { held: true });
    expect(arrive(window, behind)).toEqual([behind]);
    arrive(window, waiting);
    expect(take(window)).toEqual([waiting]);
  });

  it("continues a key whose suspect was confirmed late, while another row moves to wait", () => {
    const window = new Window({ keepsOrder: false });
    const suspect = row("k", { waiting: true, crashes: 2 });
    const [other, held] = [row("o"), row("k", { held: true })];
    arrive(window, suspect);
    expect(take(window)).toEqual([suspect]);
    window.undecided([suspect]);
    arrive(window, other);
    expect(window.take(10, 1_000_000, false)).toEqual([other]);
    expect(arrive(window, held)).toEqual([held]);
    expect(window.sentAfterAll(suspect)).toBe(true);
    window.settled(suspect, "sent");
    window.sent(other);
    window.settled(other, "sent");
    const tips = window.beginRead();
    window.settled(held, "wait");
    const again = { ...held, held: false, waiting: true };
    arrive(window, again);
    window.endRead(tips, []);
    expect(take(window)).toEqual([again]);
  });

  it("counts the bytes in flight even if a sender has transferred their buffers", () => {
    const window = new Window({ keepsOrder: true });
    const large = row("a", { message: testMessage("large", { key: "a", data: new Uint8Array(10_000) }) });
    arrive(window, large);
    take(window);
    structuredClone(large.message.data, { transfer: [large.message.data.buffer as ArrayBuffer] });
    window.sent(large);
    expect([window.inFlight, window.inFlightBytes]).toEqual([0, 0]);
  });

  it("counts rows that can be sent, apart from those that wait, and rows by lane", () => {
    const window = new Window({ keepsOrder: false });
    arrive(window, row("a"), row("a"), row("a", { lane: 2 }), row(undefined));
    expect([window.buffered, window.sendable, window.bufferedIn(1), window.bufferedIn(2)]).toEqual([4, 2, 3, 1]);
    take(window);
    expect([window.buffered, window.sendable, window.bufferedIn(1), window.bufferedIn(3)]).toEqual([2, 0, 1, 0]);
  });
});
