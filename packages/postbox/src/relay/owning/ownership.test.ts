import { gate, telemetryLog } from "@postbox/testkit";
import type { Order } from "postbox";
import { memoryStore } from "postbox/memory";
import type { Box, Member, TakenLane } from "postbox/store";
import { expect, it } from "vitest";
import { runtimeWith } from "../../internal/runtime.js";
import { LeasedLanes } from "./ownership.js";

/** An ownership of a box in memory, with some verbs overridden. */
function ownershipOn(
  change: (box: Box) => Partial<Box>,
  monotonic?: () => number,
  leaseMs = 3_000,
  order: Order = "key",
) {
  const box = memoryStore().box("outbox");
  const unchanged: Pick<Box, "own" | "renew" | "release"> = {
    own: (...args) => box.own(...args),
    renew: (...args) => box.renew(...args),
    release: (...args) => box.release(...args),
  };
  const log = telemetryLog();
  const lanes = { gained: [] as TakenLane[], lost: [] as number[], resumed: 0 };
  const ownership = new LeasedLanes({
    box: { ...unchanged, ...change(box) } as Box,
    boxName: "outbox",
    owner: "me",
    reached() {},
    order,
    leaseMs,
    pollIntervalMs: 5,
    storeBackoff: () => 1,
    runtime: runtimeWith(monotonic === undefined ? {} : { monotonic }),
    telemetry: log.telemetry,
    failed: () => {},
    isFatal: () => false,
    gained: (gained) => lanes.gained.push(...gained),
    lost: (lost) => lanes.lost.push(...lost),
    resumed: () => lanes.resumed++,
    drain: async (lanes) => lanes,
    unwanted: () => [],
  });
  return { ownership, log, lanes };
}

it("times the lease from before a renewal is sent, not from its answer", async () => {
  let now = 0;
  const { ownership, log, lanes } = ownershipOn(
    (box) => ({
      renew: (...args) => {
        now += 2_900;
        return box.renew(...args);
      },
    }),
    () => now,
  );
  const controller = new AbortController();
  const running = ownership.run(controller.signal);
  await log.until("relay.owned");
  expect(ownership.trusted()).toBe(true);
  const { resumed } = lanes;
  now += 100;
  expect(ownership.trusted()).toBe(false);
  await log.until("relay.owned", 2);
  expect(lanes.resumed).toBe(resumed + 1);
  controller.abort();
  await running;
});

it("does not renew while it takes lanes, since an old answer would drop them again", async () => {
  const [owning, mayOwn] = [gate(), gate()];
  let renewals = 0;
  const { ownership, log, lanes } = ownershipOn(
    (box) => ({
      renew: (...args) => {
        renewals++;
        return box.renew(...args);
      },
      async own(...args) {
        const taken = await box.own(...args);
        owning.open();
        await mayOwn.opened;
        return taken;
      },
    }),
    undefined,
    300,
  );
  const controller = new AbortController();
  const running = ownership.run(controller.signal);
  await owning.opened;
  const before = renewals;
  // Longer than the interval between renewals.
  await new Promise((resolve) => setTimeout(resolve, 120));
  expect(renewals).toBe(before);
  mayOwn.open();
  await log.until("relay.owned");
  controller.abort();
  await running;
  expect(lanes.lost).toEqual([]);
  expect(ownership.epochs.size).toBe(64);
});

it("loses a lane before it takes it again, since its rows belong to the old epoch", async () => {
  let epoch = 0;
  const { ownership, log, lanes } = ownershipOn(() => ({
    own: async () => (epoch < 2 ? [{ lane: 3, epoch: ++epoch, clean: true }] : []),
    renew: async () => ({
      paused: false,
      others: [],
      lanes: [...ownership.epochs].map(([lane, epoch]) => ({ lane, epoch })),
    }),
  }));
  const controller = new AbortController();
  const running = ownership.run(controller.signal);
  await log.until("relay.owned", 2);
  controller.abort();
  await running;
  expect(lanes.lost).toEqual([3]);
  const names = log.events.map(({ name }) => name).filter((name) => /owned|lost/.test(name));
  expect(names).toEqual(["relay.owned", "relay.lost", "relay.owned"]);
  expect(ownership.epochs.get(3)).toBe(2);
});

it("gives lanes back when another relay joins, and takes them when it leaves", async () => {
  let others: readonly Member[] = [];
  const { ownership, log } = ownershipOn((box) => ({
    renew: async (...args) => ({ ...(await box.renew(...args)), others }),
  }));
  const controller = new AbortController();
  const running = ownership.run(controller.signal);
  expect(await log.until("relay.owned")).toMatchObject({ lanes: 64 });
  const member = { order: "key", beat: 1, leaseMs: 3_000, expiresInMs: 60_000 } as const;
  others = ["a", "b"].map((owner) => ({ owner, ...member }));
  expect(await log.until("relay.released")).toMatchObject({ lanes: 64 - 22 });
  expect(ownership.epochs.size).toBe(22);
  controller.abort();
  await running;
});

it("takes lanes beyond its share that no other relay wants, and gives back others", async () => {
  const member = { owner: "a", order: "key", beat: 1, leaseMs: 60_000, expiresInMs: 60_000 } as const;
  let left: readonly number[] = [];
  const { ownership, log } = ownershipOn((box) => ({
    async renew(...args) {
      // The other relay has its share but for one lane, which it does not want.
      await box.renew("a", 60_000, "key");
      if (left.length === 0) left = (await box.own("a", 31)).map(({ lane }) => lane);
      return { ...(await box.renew(...args)), others: [member] };
    },
  }));
  const controller = new AbortController();
  const running = ownership.run(controller.signal);
  expect(await log.until("relay.owned")).toMatchObject({ lanes: 32 });
  const before = [...ownership.epochs.keys()];
  expect(await log.until("relay.owned", 2)).toMatchObject({ lanes: 1 });
  const unwanted = [...ownership.epochs.keys()].find((lane) => !before.includes(lane));
  expect(await log.until("relay.released")).toMatchObject({ lanes: 1 });
  expect(ownership.epochs.has(unwanted as number)).toBe(true);
  controller.abort();
  await running;
});

it("takes lanes after one and a half leases without a heartbeat, even if the lease seems valid", async () => {
  let now = 0;
  let beat = 7;
  let renewals = 0;
  const asked: string[][] = [];
  const turn = { renewed: gate(), owned: gate() };
  const member = { owner: "a", order: "key", leaseMs: 3_000, expiresInMs: 1 } as const;
  const { ownership } = ownershipOn(
    (box) => ({
      async renew(...args) {
        renewals++;
        turn.renewed.open();
        return { ...(await box.renew(...args)), others: [{ ...member, beat }] };
      },
      async own(_owner, _most, options) {
        asked.push((options?.dead ?? []).map(({ owner, beat: of }) => `${owner} ${of}`));
        turn.owned.open();
        return [];
      },
    }),
    () => now,
    // A lease of 60 ms is renewed every 20 ms.
    60,
  );
  const controller = new AbortController();
  const running = ownership.run(controller.signal);
  const step = async (ms: number) => {
    const before = renewals;
    now += ms;
    while (renewals < before + 2) {
      turn.renewed = gate();
      await turn.renewed.opened;
    }
    asked.length = 0;
    turn.owned = gate();
    await turn.owned.opened;
    return asked.at(-1);
  };
  expect(await step(10)).toEqual([]);
  expect(await step(4_600)).toEqual(["a 7"]);
  beat = 8;
  expect(await step(10)).toEqual([]);
  controller.abort();
  await running;
});

it("treats lanes of a call whose answer was lost as taken from a crashed owner", async () => {
  let calls = 0;
  const { ownership, log, lanes } = ownershipOn(
    (box) => ({
      async own(...args) {
        const taken = await box.own(...args);
        if (++calls === 1) throw new Error("the answer got lost");
        return taken;
      },
    }),
    undefined,
    60,
  );
  const controller = new AbortController();
  const running = ownership.run(controller.signal);
  await log.until("relay.owned");
  expect(lanes.gained.map(({ clean }) => clean)).toEqual(Array.from({ length: 64 }, () => false));
  // Lanes that it owned itself are different.
  ownership.lose([{ lane: 3, epoch: 1 }]);
  await log.until("relay.owned", 2);
  expect(lanes.gained.at(-1)).toEqual({ lane: 3, epoch: 1, clean: true });
  controller.abort();
  await running;
});

it("does not lose a lane because of an earlier epoch", async () => {
  const { ownership, log, lanes } = ownershipOn(() => ({}));
  const controller = new AbortController();
  const running = ownership.run(controller.signal);
  await log.until("relay.owned");
  ownership.lose([{ lane: 3, epoch: 0 }]);
  expect(lanes.lost).toEqual([]);
  ownership.lose([{ lane: 3, epoch: 1 }]);
  expect(lanes.lost).toEqual([3]);
  controller.abort();
  await running;
});

it("loses all lanes with one if the order is total", async () => {
  const { ownership, log, lanes } = ownershipOn(() => ({}), undefined, 3_000, "total");
  const controller = new AbortController();
  const running = ownership.run(controller.signal);
  await log.until("relay.owned");
  ownership.lose([{ lane: 3, epoch: 1 }]);
  expect(lanes.lost).toHaveLength(64);
  expect(ownership.epochs.size).toBe(0);
  controller.abort();
  await running;
});
