import { describe, expect, it } from "vitest";
import {
  checkAudit,
  checkChange,
  checkDryRun,
  checkGet,
  checkList,
  checkOperator,
  checkPurge,
  checkRelease,
  checkStats,
} from "./admin-options.js";
import { writeConfirmToken } from "./confirm-token.js";
import { writePageCursor } from "./page-cursor.js";

const refused = (path: string) => expect.objectContaining({ code: "option-invalid", path });
const thrownBy = (check: () => unknown): unknown => {
  try {
    return { returned: check() };
  } catch (error) {
    return error;
  }
};

describe("options of an operator", () => {
  it("have defaults", () => {
    expect(checkStats()).toEqual({ box: "outbox", done: false });
    expect(checkList()).toEqual({
      box: "outbox",
      filter: {},
      statuses: ["pending", "waiting", "scheduled", "parked", "done"],
      limit: 50,
    });
    expect(checkGet("m1")).toEqual({ id: "m1", box: "outbox" });
    expect(checkAudit({ before: 3 })).toEqual({ limit: 50, before: 3 });
    expect(checkOperator("pause", { by: "ann" })).toEqual({ box: "outbox", by: "ann" });
    expect(checkRelease("k", { by: "ann", box: "inbox" })).toEqual({ box: "inbox", by: "ann", key: "k" });
    expect(checkPurge({ retentionMs: 0 })).toEqual({ box: "outbox", retentionMs: 0 });
    expect(checkDryRun("discard", { type: "t" })).toEqual({
      action: "discard",
      box: "outbox",
      status: "parked",
      filter: { type: "t" },
      selection: { status: "parked", type: "t" },
      limit: 10_000,
    });
  });

  it("list statuses once, in their own order", () => {
    expect(checkList({ status: ["done", "pending", "done"] }).statuses).toEqual(["pending", "done"]);
    expect(checkList({ status: "parked" }).statuses).toEqual(["parked"]);
  });

  const wrong: readonly (readonly [string, unknown])[] = [
    ["ids", "m1"],
    ["ids", [""]],
    ["ids", [1]],
    ["ids", new Array(1001).fill("m")],
    ["ids", new Array(2 ** 32 - 1)],
    ["type", ""],
    ["topic", 7],
    ["key", "a\0b"],
    ["source", "\ud800"],
    ["correlationId", "x".repeat(8193)],
    ["createdFrom", new Date(Number.NaN)],
    ["createdFrom", Object.create(Date.prototype)],
    ["createdBefore", "2026-01-01"],
    ["createdBefore", new Date(8.64e15)],
    ["minAttempts", -1],
    ["minAttempts", 0.5],
    ["error", {}],
    ["status", "gone"],
    ["status", []],
    ["status", ["parked", "gone"]],
    ["limit", 0],
    ["limit", 1001],
    ["after", "not one"],
    ["box", Symbol("outbox")],
  ];
  it("refuses wrong values, and names the option", () => {
    for (const [path, value] of wrong) {
      expect(thrownBy(() => checkList({ [path]: value } as never))).toEqual(refused(path));
    }
  });

  it("refuses what is no object, has unknown names, or throws when it is read", () => {
    for (const options of [null, 7, "x", [], () => {}]) {
      expect(thrownBy(() => checkList(options as never))).toMatchObject({ code: "option-invalid" });
    }
    expect(thrownBy(() => checkList({ tpoic: "x" } as never))).toMatchObject({ code: "option-unknown", path: "tpoic" });
    expect(thrownBy(() => checkList(JSON.parse('{"__proto__":"x"}')))).toMatchObject({ code: "option-unknown" });
    const hostile = {
      get type() {
        throw new Error("no");
      },
    };
    expect(thrownBy(() => checkList(hostile as never))).toMatchObject({ code: "option-invalid" });
  });

  it("are copies", () => {
    const [ids, createdFrom] = [["m1"], new Date(0)];
    const { filter } = checkList({ ids, createdFrom });
    ids.push("m2");
    createdFrom.setTime(1);
    expect(filter).toEqual({ ids: ["m1"], createdFrom: new Date(0) });
  });

  it("name who does it", () => {
    expect(thrownBy(() => checkOperator("resume", {} as never))).toEqual(refused("by"));
    expect(thrownBy(() => checkRelease("", { by: "ann" }))).toEqual(refused("key"));
    expect(thrownBy(() => checkChange("retry", { ids: [] }, {} as never))).toEqual(refused("by"));
    expect(thrownBy(() => checkChange("retry", { ids: [] }, undefined as never))).toMatchObject({
      code: "option-invalid",
    });
  });

  it("take a pace for a replay only, a signal for each, and a status where there is a choice", () => {
    const { signal } = new AbortController();
    expect(checkChange("replay", { ids: ["m"] }, { by: "ann", perSecond: 5, signal })).toMatchObject({ perSecond: 5 });
    const paced = { by: "ann", perSecond: 5 };
    expect(thrownBy(() => checkChange("retry", { ids: ["m"] }, paced))).toMatchObject({ code: "option-unknown" });
    expect(thrownBy(() => checkDryRun("discard", { status: "done" } as never))).toEqual(refused("status"));
    expect(thrownBy(() => checkDryRun("retry", { status: "scheduled" } as never))).toEqual(refused("status"));
    expect(checkDryRun("retry", { status: "waiting" })).toMatchObject({ status: "waiting" });
    expect(thrownBy(() => checkDryRun("replay", { status: "done" } as never))).toMatchObject({
      code: "option-unknown",
    });
    expect(thrownBy(() => checkDryRun("replay", { box: "inbox/billing" }))).toEqual(refused("box"));
    expect(thrownBy(() => checkDryRun("explode" as never, {}))).toEqual(refused("action"));
    expect(thrownBy(() => checkDryRun("retry", {}, { limit: 1_000_001 }))).toEqual(refused("limit"));
  });

  it.each([-1, Number.NaN, Number.POSITIVE_INFINITY, "1"])("refuse to keep what is done for %o ms", (retentionMs) => {
    expect(thrownBy(() => checkPurge({ retentionMs: retentionMs as number }))).toEqual(refused("retentionMs"));
  });
});

describe("a page's cursor", () => {
  it("leads back to where it was made, and nothing else does", () => {
    const cursor = { status: "parked", position: 42 } as const;
    const after = writePageCursor(cursor);
    expect(checkList({ after }).after).toEqual(cursor);
    expect(thrownBy(() => checkList({ after, status: "done" }))).toEqual(refused("after"));
    for (const text of [`${after}=`, ` ${after}`, after.slice(1), "W10", "bnVsbA", "e30"]) {
      expect(
        thrownBy(() => checkList({ after: text })),
        text,
      ).toEqual(refused("after"));
    }
    for (const position of [-1, 0.5, "1", null]) {
      const forged = Buffer.from(JSON.stringify(["parked", position])).toString("base64url");
      expect(
        thrownBy(() => checkList({ after: forged })),
        String(position),
      ).toEqual(refused("after"));
    }
  });
});

describe("a confirmation", () => {
  const selection = { type: "t", createdFrom: new Date(0) };
  const bounds = { most: 3, upTo: 99, until: 7 };
  const confirm = writeConfirmToken(checkDryRun("retry", selection), bounds);

  it("gives the bounds that were counted, however the selection is spelt", () => {
    const again = { createdFrom: new Date(0), type: "t", box: "outbox", topic: undefined };
    expect(checkChange("retry", again as never, { by: "ann", confirm }).bounds).toEqual(bounds);
    const byIds = writeConfirmToken(checkDryRun("retry", { ids: ["b", "a"] }), bounds);
    expect(checkChange("retry", { ids: ["a", "b", "a"] }, { by: "ann", confirm: byIds }).bounds).toEqual(bounds);
  });

  it("is needed without ids", () => {
    expect(thrownBy(() => checkChange("retry", selection, { by: "ann" }))).toEqual(refused("confirm"));
    expect(checkChange("retry", { ids: ["m1"] }, { by: "ann" }).bounds.most).toBe(Number.MAX_SAFE_INTEGER);
  });

  it("holds for no other action, selection or box, and not when it was changed", () => {
    const change = (action: "retry" | "discard", more: object, token = confirm) =>
      thrownBy(() => checkChange(action, { ...selection, ...more }, { by: "ann", confirm: token }));
    expect(change("discard", {})).toEqual(refused("confirm"));
    expect(change("retry", { topic: "x" })).toEqual(refused("confirm"));
    expect(change("retry", { type: "u" })).toEqual(refused("confirm"));
    expect(change("retry", { box: "inbox" })).toEqual(refused("confirm"));
    expect(change("retry", { ids: ["m1"] })).toEqual(refused("confirm"));
    const parts = JSON.parse(Buffer.from(confirm, "base64url").toString()) as unknown[];
    const forged = (...first: unknown[]) =>
      Buffer.from(JSON.stringify([...first, ...parts.slice(first.length)])).toString("base64url");
    for (const token of [
      `${confirm}A`,
      "W10",
      "%",
      forged(4),
      forged(3, 100),
      forged(3, 99, 8),
      forged("3"),
      forged(-1),
    ]) {
      expect(change("retry", {}, token), token).toEqual(refused("confirm"));
    }
    const from = checkDryRun("discard", { status: "waiting" });
    const waiting = writeConfirmToken(from, bounds);
    expect(thrownBy(() => checkChange("discard", {}, { by: "ann", confirm: waiting }))).toEqual(refused("confirm"));
  });
});
