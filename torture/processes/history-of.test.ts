import { appendFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { checkHistory, type Promises } from "@postbox/testkit/history";
import { afterAll, describe, expect, it } from "vitest";
import { type DiaryEvent, type Entry, openDiary, readDiary } from "./diary.js";
import { type EffectRow, historyOf, type Remains } from "./history-of.js";

const promises: Promises = {
  boxes: [{ box: "outbox", order: "key", consumers: [{ consumer: "ledger", effectsInOrder: true }] }],
};
const message = (id: string) => ({ id, key: "k", digest: `of ${id}` });
const effect = (id: string, seen: number): EffectRow => ({ consumer: "ledger", id, key: "k", seen });

/** At the moments 10, 20, 30 … */
const diary = (...events: DiaryEvent[]): Entry[] => events.map((event, index) => ({ at: 10 * (index + 1), ...event }));
const appended = (tx: string, id: string): DiaryEvent => ({
  what: "appended",
  tx,
  box: "outbox",
  message: message(id),
});
const committed = (tx: string): DiaryEvent => ({ what: "committed", tx });
const accepted = (id: string): DiaryEvent => ({ what: "accepted", box: "outbox", message: message(id) });

const producer = diary(appended("t1", "m1"), committed("t1"), appended("t2", "m2"), committed("t2"));
const broker = diary(accepted("m1"), accepted("m2"));
const sound: Remains = {
  committed: new Set(["t1", "t2"]),
  effects: [effect("m1", 0), effect("m2", 1)],
  outbox: { pending: [], wait: [], parked: [], done: [] },
};

function rulesBroken(diaries: readonly (readonly Entry[])[], remains: Partial<Remains> = {}): string[] {
  return checkHistory(historyOf(diaries, { ...sound, ...remains }), promises).map(({ rule }) => rule);
}

describe("the history of a run", () => {
  it("is sound when everything arrived once, and in order", () => {
    expect(rulesBroken([producer, broker])).toEqual([]);
  });

  it("is in the order of the moments, whoever wrote them down", () => {
    const late = [...producer].map((entry) => ({ ...entry, at: entry.at + 1_000 }));
    const whats = historyOf([late, broker], sound).map(({ what }) => what);
    expect(whats.slice(0, 4)).toEqual(["accepted", "accepted", "appended", "committed"]);
  });

  it("shows what was lost, doubled, or had its effect too early", () => {
    expect(rulesBroken([producer, broker.slice(0, 1)], { effects: [effect("m1", 0)] })).toEqual(["lost"]);
    expect(rulesBroken([producer, broker], { effects: [effect("m1", 0)] })).toEqual(["unhandled"]);
    expect(rulesBroken([producer, broker], { effects: [...sound.effects, effect("m2", 2)] })).toEqual(["twice"]);
    expect(rulesBroken([producer, broker], { effects: [effect("m2", 0), effect("m1", 1)] })).toEqual(["effect-order"]);
    expect(rulesBroken([producer, diary(accepted("m2"), accepted("m1"))])).toEqual(["order"]);
  });

  it("convicts two effects of a key that did not see each other", () => {
    expect(rulesBroken([producer, broker], { effects: [effect("m1", 0), effect("m2", 0)] })).toEqual(["effect-order"]);
  });

  it("asks the database how a transaction has ended whose producer does not know", () => {
    const dead = producer.slice(0, 3);
    expect(rulesBroken([dead, broker])).toEqual([]);
    expect(rulesBroken([[...dead, { at: 40, what: "unknown", tx: "t2" }], broker])).toEqual([]);
    const effects = [effect("m1", 0)];
    const rolledBack = { committed: new Set(["t1"]), effects };
    expect(rulesBroken([dead, broker.slice(0, 1)], rolledBack)).toEqual([]);
    expect(rulesBroken([dead, broker], rolledBack)).toEqual(["ghost"]);
  });

  it("is none where the database does not hold what it has told", () => {
    expect(() => rulesBroken([producer, broker], { committed: new Set(["t1"]) })).toThrow("t2 was told as committed");
  });
});

describe("a diary", () => {
  const folder = mkdtempSync(join(tmpdir(), "diary-"));
  afterAll(() => rmSync(folder, { recursive: true }));

  it("loses nothing but the line in which its writer died, whoever goes on", () => {
    const file = join(folder, "producer.jsonl");
    expect(readDiary(file)).toEqual([]);
    openDiary(file).write(committed("t1"), 10);
    appendFileSync(file, '{"at":20,"what":"comm');
    expect(readDiary(file)).toEqual([{ at: 10, ...committed("t1") }]);
    openDiary(file).write(committed("t3"), 30);
    expect(readDiary(file)).toEqual([10, 30].map((at, index) => ({ at, ...committed(["t1", "t3"][index] as string) })));
  });
});
