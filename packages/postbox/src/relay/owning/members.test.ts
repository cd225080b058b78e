import type { Member } from "postbox/store";
import { expect, it } from "vitest";
import { checkOrder, Members } from "./members.js";

const member = (owner: string, more: Partial<Member> = {}): Member => ({
  owner,
  order: "key",
  beat: 1,
  leaseMs: 1_000,
  expiresInMs: 1_000,
  ...more,
});

it("counts the members that have renewed within the last half of a lease", () => {
  const members = new Members({ monotonic: () => 0 });
  expect(members.sharing).toBe(1);
  members.saw([member("a"), member("b", { expiresInMs: 501 }), member("c", { expiresInMs: 500 })]);
  expect(members.sharing).toBe(3);
});

it("counts a member as crashed after one and a half leases without a heartbeat", () => {
  let now = 0;
  const members = new Members({ monotonic: () => now });
  members.saw([member("a"), member("b")]);
  now = 1_400;
  members.saw([member("a"), member("b", { beat: 2 })]);
  expect(members.dead()).toEqual([]);
  now = 1_501;
  expect(members.dead()).toEqual([{ owner: "a", beat: 1 }]);
});

it("gives a crashed member no share, even if the database's clock was set back and its lease seems to last", () => {
  let now = 0;
  const members = new Members({ monotonic: () => now });
  const crashed = member("a", { expiresInMs: 3_600_000 });
  members.saw([crashed, member("b")]);
  now = 1_501;
  members.saw([crashed, member("b", { beat: 2 })]);
  expect(members.sharing).toBe(2);
  members.saw([member("a", { beat: 2 }), member("b", { beat: 3 })]);
  expect(members.sharing).toBe(3);
});

it("rejects another order than that of an earlier relay with a valid lease", () => {
  const check =
    (more: Partial<Member>, owner = "a") =>
    () =>
      checkOrder([member(owner, more)], "b", "total", "outbox");
  expect(check({})).toThrow('runs with order "key", this one with "total"');
  expect(check({ order: "total" })).not.toThrow();
  expect(check({ expiresInMs: 0 })).not.toThrow();
  expect(check({}, "c")).not.toThrow();
});
