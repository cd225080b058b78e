import { describe, expect, it } from "vitest";
import { checkHistory, type Rule } from "./check-history.js";
import type { BoxPromise, HistoryEvent, Promises, RestedBox, Sighting } from "./history.js";

const box = "orders";
const consumer = "billing";

/** `a1` has the key `a`; ids that begin with a dash have no key. */
const message = (id: string): Sighting => ({
  id,
  digest: `of ${id}`,
  ...(id.startsWith("-") ? {} : { key: id.slice(0, 1) }),
});
const appended = (tx: string, ...ids: string[]): HistoryEvent[] =>
  ids.map((id) => ({ what: "appended", tx, box, message: message(id) }));
const committed = (tx: string): HistoryEvent => ({ what: "committed", tx });
const rolledBack = (tx: string): HistoryEvent => ({ what: "rolled-back", tx });
const published = (tx: string, ...ids: string[]) => [...appended(tx, ...ids), committed(tx)];
const accepted = (id: string): HistoryEvent => ({ what: "accepted", box, message: message(id) });
const delivered = (id: string, to = consumer): HistoryEvent => ({
  what: "delivered",
  consumer: to,
  message: message(id),
});
const effect = (id: string, tx = `h-${id}`, by = consumer): HistoryEvent => ({
  what: "effect",
  tx,
  consumer: by,
  id,
});
const handled = (id: string, by = consumer) => [
  delivered(id, by),
  effect(id, `h-${id}-${by}`, by),
  committed(`h-${id}-${by}`),
];
const sent = (...ids: string[]) => ids.flatMap((id) => [accepted(id), ...handled(id)]);
const refused = (id: string): HistoryEvent => ({ what: "refused", consumer, id });
const released = (key: string): HistoryEvent => ({ what: "released", box, key });
const onBox =
  (what: "parked" | "retried" | "discarded" | "replayed") =>
  (id: string): HistoryEvent => ({ what, box, id });
const [parked, retried, discarded, replayed] = [
  onBox("parked"),
  onBox("retried"),
  onBox("discarded"),
  onBox("replayed"),
];
const fault: HistoryEvent = { what: "fault", kind: "a relay dies" };
const wrote = (epoch: number, current: number): HistoryEvent => ({ what: "wrote", box, lane: 7, epoch, current });
const rested = (contents: Partial<RestedBox> = {}): HistoryEvent => ({
  what: "rested",
  box,
  contents: { pending: [], wait: [], parked: [], done: [], ...contents },
});

/** Wants the messages of key `a` only. */
const choosy = { consumers: [{ consumer, effectsInOrder: true, wants: ({ key }: Sighting) => key === "a" }] };

type Step = HistoryEvent | readonly HistoryEvent[];

const promised = (promise: Partial<BoxPromise> = {}): Promises => ({
  boxes: [{ box, order: "key", consumers: [{ consumer }], ...promise }],
});
const inOrder = { consumers: [{ consumer, effectsInOrder: true }] };

const check = (steps: readonly Step[], promise: Partial<BoxPromise> = {}) =>
  checkHistory(steps.flat(), promised(promise));
/** Each violation as `rule: ids`. */
const found = (steps: readonly Step[], promise?: Partial<BoxPromise>) =>
  check(steps, promise).map(({ rule, ids }) => `${rule}: ${ids.join(" ")}`);
const texts = (steps: readonly Step[], promise?: Partial<BoxPromise>) => check(steps, promise).map(({ text }) => text);

type Case = [what: string, steps: readonly Step[], promise?: Partial<BoxPromise>];

describe("accepts", () => {
  const sound: Case[] = [
    [
      "messages that a parked one held until an operator released them",
      [published("t", "a1", "a2"), parked("a1"), released("a"), sent("a2"), rested({ parked: ["a1"] })],
      { holdParked: true },
    ],
    ["nothing", [rested()]],
    ["one message", [published("t", "a1"), sent("a1"), rested()]],
    ["a rollback", [appended("t", "a1"), rolledBack("t"), rested()]],
    [
      "an id that a second attempt appends again",
      [appended("t", "a1"), rolledBack("t"), published("u", "a1"), sent("a1"), rested()],
    ],
    [
      "a name that a second transaction takes",
      [published("t", "a1"), published("t", "a2"), sent("a1", "a2"), rested()],
    ],
    ["an end of a transaction that did nothing", [committed("t"), rolledBack("u"), rested()]],
    ["keys side by side", [published("t", "a1", "b1", "a2"), sent("b1", "a1", "a2"), rested()]],
    ["messages without a key in any order", [published("t", "-1"), published("u", "-2"), sent("-2", "-1"), rested()]],
    ["no order", [published("t", "a1"), published("u", "a2"), sent("a2", "a1"), rested()], { order: "none" }],
    [
      "no order of effects either",
      [published("t", "a1"), published("u", "a2"), sent("a2", "a1"), rested()],
      { order: "none", ...inOrder },
    ],
    [
      "a total order",
      [published("t", "a1", "-1"), published("u", "b1"), sent("a1", "-1", "b1"), rested()],
      { order: "total" },
    ],
    [
      "overlapping transactions that commit in the other order",
      [appended("t", "a1"), published("u", "a2"), sent("a2"), committed("t"), sent("a1"), rested()],
    ],
    [
      "overlapping transactions, sent in the order of appends",
      [appended("t", "a1"), published("u", "a2"), committed("t"), sent("a1", "a2"), rested()],
    ],
    [
      "overlapping transactions under a total order",
      [appended("t", "a1"), published("u", "b1"), committed("t"), sent("b1", "a1"), rested()],
      { order: "total", ...inOrder },
    ],
    [
      "overlapping transactions of two keys, under a total order with strict key order",
      [appended("t", "a1"), published("u", "b1"), committed("t"), sent("a1", "b1"), rested()],
      { order: "total", strictKeyOrder: true },
    ],
    [
      "strict key order",
      [
        appended("t", "b1"),
        published("u", "a1"),
        appended("t", "a2"),
        committed("t"),
        sent("a1", "b1", "a2"),
        rested(),
      ],
      { strictKeyOrder: true, ...inOrder },
    ],
    [
      "commits without a key, with strict key order",
      [appended("t", "-1"), published("u", "-2"), committed("t"), sent("-1", "-2"), rested()],
      { order: "total", strictKeyOrder: true },
    ],
    ["a message that was sent and kept", [published("t", "a1"), sent("a1"), rested({ done: ["a1"] })], { keep: true }],
    [
      "a message that was sent, but not confirmed, and parked in the end",
      [published("t", "a1"), fault, sent("a1"), parked("a1"), rested({ parked: ["a1"] })],
      { keep: true },
    ],
    [
      "the same, discarded",
      [published("t", "a1"), fault, sent("a1"), parked("a1"), discarded("a1"), rested()],
      { keep: true },
    ],
    [
      "a parked message whose key continues",
      [published("t", "a1", "a2"), parked("a1"), sent("a2"), rested({ parked: ["a1"] })],
      inOrder,
    ],
    ["a discarded one", [published("t", "a1", "a2"), parked("a1"), discarded("a1"), sent("a2"), rested()]],
    [
      "a retried message",
      [published("t", "a1", "a2"), parked("a1"), sent("a2"), retried("a1"), sent("a1"), rested()],
      inOrder,
    ],
    [
      "a discarded message whose key waits",
      [published("t", "a1", "a2"), parked("a1"), discarded("a1"), sent("a2"), rested()],
      { holdParked: true, ...inOrder },
    ],
    [
      "a retried message whose key waits",
      [published("t", "a1", "a2"), parked("a1"), retried("a1"), sent("a1", "a2"), rested()],
      { holdParked: true },
    ],
    [
      "a key that waits behind a parked one",
      [
        published("t", "a1", "a2", "a3", "b1"),
        parked("a1"),
        sent("b1"),
        rested({ pending: ["a3"], wait: ["a2"], parked: ["a1"] }),
      ],
      { holdParked: true },
    ],
    [
      "a key that waits behind one that was parked again",
      [published("t", "a1", "a2"), parked("a1"), retried("a1"), parked("a1"), rested({ wait: ["a2"], parked: ["a1"] })],
      { holdParked: true },
    ],
    [
      "a key that waits behind the second of two",
      [
        published("t", "a1", "a2", "a3"),
        parked("a2"),
        parked("a1"),
        discarded("a1"),
        rested({ wait: ["a3"], parked: ["a2"] }),
      ],
      { holdParked: true },
    ],
    [
      "a message that was sent before it was parked, whose key waits",
      [published("t", "a1", "a2"), fault, sent("a1"), parked("a1"), sent("a2"), rested({ parked: ["a1"] })],
      { holdParked: true },
    ],
    [
      "a replayed message",
      [
        published("t", "a1", "a2"),
        sent("a1", "a2"),
        replayed("a1"),
        accepted("a1"),
        delivered("a1"),
        rested({ done: ["a1", "a2", "a1"] }),
      ],
      { keep: true, ...inOrder },
    ],
    [
      "a message that was replayed twice at once, and delivered late",
      [
        published("t", "a1"),
        accepted("a1"),
        replayed("a1"),
        replayed("a1"),
        accepted("a1"),
        accepted("a1"),
        handled("a1"),
        delivered("a1"),
        delivered("a1"),
        rested({ done: ["a1", "a1", "a1"] }),
      ],
      { keep: true },
    ],
    [
      "replayed messages that were parked, and then discarded",
      [
        published("t", "a1", "b1"),
        sent("a1", "b1"),
        [replayed("a1"), parked("a1")],
        [replayed("b1"), parked("b1"), discarded("b1")],
        rested({ parked: ["a1"], done: ["a1", "b1"] }),
      ],
      { keep: true },
    ],
    [
      "an operator who discards more often than there are messages",
      [published("t", "a1"), parked("a1"), discarded("a1"), discarded("a1"), rested()],
    ],
    [
      "a message that is sent and delivered again after a fault",
      [
        published("t", "a1", "a2"),
        accepted("a1"),
        fault,
        accepted("a1"),
        sent("a2"),
        delivered("a1"),
        handled("a1"),
        accepted("a1"),
        rested(),
      ],
    ],
    [
      "an effect that is rolled back and retried",
      [
        published("t", "a1"),
        fault,
        accepted("a1"),
        delivered("a1"),
        effect("a1", "h"),
        rolledBack("h"),
        handled("a1"),
        rested(),
      ],
    ],
    [
      "a refused message",
      [published("t", "a1", "a2"), accepted("a1"), delivered("a1"), refused("a1"), sent("a2"), rested()],
      inOrder,
    ],
    [
      "a message that is refused outright, at any time",
      [
        published("t", "a1", "a2"),
        accepted("a1"),
        delivered("a1"),
        sent("a2"),
        { what: "refused", consumer, id: "a1", outright: true },
        rested(),
      ],
      inOrder,
    ],
    [
      "effects in another order, where none was promised",
      [published("t", "a1", "a2"), accepted("a1"), sent("a2"), handled("a1"), rested()],
    ],
    [
      "two effects in one transaction",
      [
        published("t", "a1", "a2"),
        accepted("a1"),
        accepted("a2"),
        effect("a2", "h"),
        effect("a1", "h"),
        committed("h"),
        rested(),
      ],
      inOrder,
    ],
    [
      "two consumers",
      [published("t", "a1"), sent("a1"), handled("a1", "shipping"), rested()],
      { consumers: [{ consumer }, { consumer: "shipping" }] },
    ],
    ["a consumer that nobody spoke of", [published("t", "a1"), sent("a1"), handled("a1", "audit"), rested()]],
    [
      "strict key order, with several messages in each transaction",
      [published("t", "a1", "a2"), published("u", "a3", "a4"), sent("a1", "a2", "a3", "a4"), rested()],
      { strictKeyOrder: true },
    ],
    [
      "commits in another order than appends, with strict key order",
      [
        appended("t", "a1"),
        published("u", "a2"),
        published("v", "a3"),
        committed("t"),
        sent("a2", "a3", "a1"),
        rested(),
      ],
      { strictKeyOrder: true },
    ],
    [
      "an id that a first attempt had appended before the others",
      [appended("t", "a2"), rolledBack("t"), published("u", "a1", "a2"), sent("a1", "a2"), rested()],
      { strictKeyOrder: true },
    ],
    [
      "a key that the first attempt did not have",
      [
        { what: "appended", tx: "t", box, message: { ...message("a1"), key: "b" } },
        rolledBack("t"),
        published("u", "a1", "a2"),
        parked("a1"),
        rested({ wait: ["a2"], parked: ["a1"] }),
      ],
      { holdParked: true },
    ],
    [
      "a message that was sent, parked anyway, and retried",
      [published("t", "a1"), sent("a1"), parked("a1"), retried("a1"), accepted("a1"), delivered("a1"), rested()],
    ],
    [
      "a message that was discarded without a record of its parking",
      [published("t", "a1", "a2"), discarded("a1"), sent("a2"), rested()],
      inOrder,
    ],
    [
      "a message that no consumer wants",
      [published("t", "b1", "a1"), accepted("b1"), sent("a1"), rested()],
      { order: "total", ...choosy },
    ],
    ["a write of the owner", [wrote(3, 3), rested()]],
  ];
  it.each(sound)("%s", (_, steps, promise) => {
    expect(check(steps, promise)).toEqual([]);
  });

  it("a box without a promise", () => {
    const elsewhere: HistoryEvent[] = [
      { what: "appended", tx: "x", box: "audit", message: message("a1") },
      { what: "appended", tx: "x", box: "audit", message: message("a2") },
      committed("x"),
      { what: "accepted", box: "audit", message: message("a2") },
      {
        what: "rested",
        box: "audit",
        contents: { pending: [], wait: ["a9"], parked: [], done: [] },
      },
    ];
    expect(found([elsewhere, rested()])).toEqual(["ghost: a9"]);
    expect(found([elsewhere.slice(0, -1), rested()])).toEqual([]);
  });

  it("one id in two boxes with a consumer each, or with one for both", () => {
    const events = ["orders", "refunds"].flatMap((name): HistoryEvent[] => [
      { what: "appended", tx: `t-${name}`, box: name, message: { id: "1", digest: name } },
      name === box ? rolledBack(`t-${name}`) : committed(`t-${name}`),
    ]);
    const sighting = { id: "1", digest: "refunds" };
    events.push({ what: "accepted", box: "refunds", message: sighting });
    events.push({ what: "delivered", consumer, message: sighting }, effect("1"), committed("h-1"), rested());
    const contents = { pending: [], wait: [], parked: [], done: [] };
    events.push({ what: "rested", box: "refunds", contents });
    const boxes = ["orders", "refunds"].map((name) => ({
      box: name,
      order: "key" as const,
      consumers: [{ consumer }],
    }));
    expect(checkHistory(events, { boxes })).toEqual([]);
  });
});

describe("finds", () => {
  const broken: [rule: Rule, ids: string, ...Case][] = [
    ["lost", "a1", "a message that is nowhere", [published("t", "a1"), rested()]],
    [
      "lost",
      "a1",
      "a message in `done` that was never sent",
      [published("t", "a1"), rested({ done: ["a1"] })],
      { keep: true },
    ],
    [
      "lost",
      "a1",
      "a message that was lost after it was parked",
      [published("t", "a1"), parked("a1"), retried("a1"), rested()],
    ],
    ["lost", "a1", "a message that is nowhere in a box that keeps", [published("t", "a1"), rested()], { keep: true }],
    ["undrained", "a1", "a message that stays in pending", [published("t", "a1"), rested({ pending: ["a1"] })]],
    ["undrained", "a1", "a message that stays in wait", [published("t", "a1"), rested({ wait: ["a1"] })]],
    [
      "undrained",
      "a1",
      "a message that stays although it was sent",
      [published("t", "a1"), fault, sent("a1"), rested({ pending: ["a1"] })],
      { keep: true },
    ],
    [
      "undrained",
      "a2",
      "a message that waits although its key is not held",
      [published("t", "a1", "a2"), parked("a1"), rested({ wait: ["a2"], parked: ["a1"] })],
    ],
    [
      "undrained",
      "b1",
      "a message that waits for another key",
      [published("t", "a1", "b1"), parked("a1"), rested({ wait: ["b1"], parked: ["a1"] })],
      { holdParked: true },
    ],
    [
      "undrained",
      "-2",
      "a message that waits without a key",
      [published("t", "-1", "-2"), parked("-1"), rested({ pending: ["-2"], parked: ["-1"] })],
      { holdParked: true },
    ],
    [
      "undrained",
      "a2",
      "a message that waits after a retry released its key",
      [published("t", "a1", "a2"), parked("a1"), retried("a1"), sent("a1"), rested({ wait: ["a2"] })],
      { holdParked: true },
    ],
    [
      "undrained",
      "a2",
      "a message that waits after a discard released its key",
      [published("t", "a1", "a2"), parked("a1"), discarded("a1"), rested({ wait: ["a2"] })],
      { holdParked: true },
    ],
    [
      "undrained",
      "a2",
      "a message that waits after the last of two retries",
      [
        published("t", "a1", "a2"),
        [parked("a1"), retried("a1"), parked("a1"), retried("a1")],
        sent("a1"),
        rested({ wait: ["a2"] }),
      ],
      { holdParked: true },
    ],
    [
      "undrained",
      "a2",
      "a message that waits after the last of two discards",
      [
        published("t", "a1", "a2"),
        sent("a1"),
        [replayed("a1"), parked("a1"), discarded("a1"), replayed("a1"), parked("a1"), discarded("a1")],
        rested({ wait: ["a2"], done: ["a1"] }),
      ],
      { holdParked: true, keep: true },
    ],
    [
      "undrained",
      "a1",
      "a message that waits although none was parked",
      [published("t", "a1"), rested({ wait: ["a1"] })],
      { holdParked: true },
    ],
    [
      "ghost",
      "a1",
      "a message that was rolled back, but sent",
      [appended("t", "a1"), rolledBack("t"), accepted("a1"), rested()],
    ],
    ["ghost", "a1", "a message that was sent but never appended", [accepted("a1"), rested()]],
    ["ghost", "a1", "a message that was delivered but never appended", [delivered("a1"), rested()]],
    [
      "ghost",
      "a1",
      "a message that has an effect but was never appended",
      [effect("a1", "h"), committed("h"), rested()],
    ],
    [
      "ghost",
      "a1",
      "a message that was rolled back, but has an effect",
      [appended("t", "a1"), rolledBack("t"), handled("a1"), rested()],
    ],
    ["ghost", "a1", "a message that was parked but never appended", [parked("a1"), rested()]],
    ["ghost", "a1", "a message that is in parked", [rested({ parked: ["a1"] })]],
    [
      "ghost",
      "a1",
      "a message that is in done",
      [appended("t", "a1"), rolledBack("t"), rested({ done: ["a1"] })],
      { keep: true },
    ],
    [
      "ghost",
      "a1",
      "only the ghost, if a real message goes before it",
      [appended("t", "a1"), rolledBack("t"), published("u", "a2"), sent("a2"), accepted("a1"), rested()],
    ],
    [
      "misplaced",
      "a1",
      "a message that is parked twice",
      [published("t", "a1"), parked("a1"), rested({ parked: ["a1", "a1"] })],
    ],
    [
      "misplaced",
      "a1",
      "a message that is in parked and in done",
      [published("t", "a1"), sent("a1"), parked("a1"), rested({ parked: ["a1"], done: ["a1"] })],
      { keep: true },
    ],
    [
      "misplaced",
      "a1",
      "a message that is in done twice",
      [published("t", "a1"), sent("a1"), rested({ done: ["a1", "a1"] })],
      { keep: true },
    ],
    [
      "misplaced",
      "a1",
      "a message that is in done more often than it was replayed",
      [published("t", "a1"), sent("a1"), replayed("a1"), rested({ done: ["a1", "a1", "a1"] })],
      { keep: true },
    ],
    [
      "misplaced",
      "a1",
      "a discarded message that is still there",
      [published("t", "a1"), parked("a1"), discarded("a1"), rested({ parked: ["a1"] })],
    ],
    [
      "misplaced",
      "a1",
      "a sent message that was not kept",
      [published("t", "a1"), sent("a1"), rested()],
      { keep: true },
    ],
    [
      "misplaced",
      "a1",
      "a message that should not be kept",
      [published("t", "a1"), sent("a1"), rested({ done: ["a1"] })],
    ],
    ["twice", "a1", "two effects", [published("t", "a1"), sent("a1"), effect("a1", "h"), committed("h"), rested()]],
    [
      "twice",
      "a1",
      "two effects within one transaction",
      [published("t", "a1"), accepted("a1"), effect("a1", "h"), effect("a1", "h"), committed("h"), rested()],
    ],
    [
      "twice",
      "a1",
      "two effects of a message that was replayed",
      [published("t", "a1"), sent("a1"), replayed("a1"), sent("a1"), rested({ done: ["a1"] })],
      { keep: true },
    ],
    ["unhandled", "a1", "no effect", [published("t", "a1"), accepted("a1"), delivered("a1"), rested()]],
    ["unhandled", "a1", "no delivery", [published("t", "a1"), accepted("a1"), rested()]],
    [
      "unhandled",
      "a1",
      "an effect that was rolled back",
      [published("t", "a1"), accepted("a1"), effect("a1", "h"), rolledBack("h"), rested()],
    ],
    [
      "unhandled",
      "a1",
      "the effect of another consumer only",
      [published("t", "a1"), sent("a1"), rested()],
      { consumers: [{ consumer }, { consumer: "shipping" }] },
    ],
    ["unhandled", "a1", "no effect of a wanted message", [published("t", "a1"), accepted("a1"), rested()], choosy],
    ["order", "a1 a2", "two of a key", [published("t", "a1"), published("u", "a2"), sent("a2", "a1"), rested()]],
    ["order", "a1 a2", "two of a key in one transaction", [published("t", "a1", "a2"), sent("a2", "a1"), rested()]],
    [
      "order",
      "a1 a2",
      "a message that overtook one that was parked later",
      [published("t", "a1"), published("u", "a2"), sent("a2"), parked("a1"), rested({ parked: ["a1"] })],
    ],
    [
      "order",
      "a1 a2",
      "a message that overtook one that was discarded later",
      [published("t", "a1", "a2"), sent("a2"), parked("a1"), discarded("a1"), rested()],
      { holdParked: true },
    ],
    [
      "order",
      "a1 a2",
      "a message that did not wait for a parked one",
      [published("t", "a1", "a2"), parked("a1"), sent("a2"), rested({ parked: ["a1"] })],
      { holdParked: true },
    ],
    [
      "order",
      "a1 a2",
      "a message that did not wait for a retried one",
      [published("t", "a1", "a2"), parked("a1"), retried("a1"), sent("a2", "a1"), rested()],
      { holdParked: true },
    ],
    [
      "order",
      "a1 b1",
      "two keys under a total order",
      [published("t", "a1"), published("u", "b1"), sent("b1", "a1"), rested()],
      { order: "total" },
    ],
    [
      "order",
      "-1 -2",
      "no keys under a total order",
      [published("t", "-1", "-2"), sent("-2", "-1"), rested()],
      { order: "total" },
    ],
    [
      "order",
      "a2 a1",
      "commits of one key, with strict key order",
      [appended("t", "a1"), published("u", "a2"), committed("t"), sent("a1", "a2"), rested()],
      { strictKeyOrder: true },
    ],
    [
      "order",
      "a1 a2",
      "appends of one transaction, with strict key order",
      [published("t", "a1", "a2"), sent("a2", "a1"), rested()],
      { strictKeyOrder: true },
    ],
    [
      "order",
      "a2 a1",
      "commits of one key under a total order, with strict key order",
      [appended("t", "a1"), published("u", "a2"), committed("t"), sent("a1", "a2"), rested()],
      { order: "total", strictKeyOrder: true },
    ],
    [
      "order",
      "a1 b1",
      "two keys under a total order, with strict key order",
      [published("t", "a1"), published("u", "b1"), sent("b1", "a1"), rested()],
      { order: "total", strictKeyOrder: true },
    ],
    [
      "order",
      "a1 a2",
      "an order that only the repeated sends keep",
      [published("t", "a1", "a2"), fault, sent("a2", "a1"), accepted("a2"), rested()],
    ],
    [
      "effect-order",
      "a1 a2",
      "effects of a key",
      [published("t", "a1"), published("u", "a2"), accepted("a1"), sent("a2"), handled("a1"), rested()],
      inOrder,
    ],
    [
      "effect-order",
      "a1 a2",
      "effects of one transaction's messages",
      [published("t", "a1", "a2"), accepted("a1"), sent("a2"), handled("a1"), rested()],
      inOrder,
    ],
    [
      "effect-order",
      "a1 b1",
      "effects under a total order",
      [published("t", "a1", "b1"), accepted("a1"), sent("b1"), handled("a1"), rested()],
      { order: "total", ...inOrder },
    ],
    [
      "effect-order",
      "a1 a2",
      "effects that were written in order, and committed in another",
      [
        published("t", "a1", "a2"),
        [accepted("a1"), accepted("a2")],
        [effect("a1"), effect("a2"), committed("h-a2"), committed("h-a1")],
        rested(),
      ],
      inOrder,
    ],
    [
      "effect-order",
      "a1 a2",
      "an effect before the earlier one was refused",
      [published("t", "a1", "a2"), accepted("a1"), sent("a2"), refused("a1"), rested()],
      inOrder,
    ],
    [
      "effect-order",
      "a1 a2",
      "an effect before the earlier one was parked",
      [
        published("t", "a1", "a2"),
        fault,
        accepted("a1"),
        sent("a2"),
        parked("a1"),
        handled("a1"),
        rested({ parked: ["a1"] }),
      ],
      inOrder,
    ],
    [
      "duplicate",
      "a1",
      "a message that was sent again without a reason",
      [published("t", "a1"), sent("a1"), accepted("a1"), fault, rested()],
    ],
    [
      "duplicate",
      "a1",
      "a message that was delivered again without a reason",
      [published("t", "a1"), sent("a1"), delivered("a1"), fault, rested()],
    ],
    [
      "duplicate",
      "a1",
      "a message that was sent again after an earlier retry",
      [published("t", "a1"), parked("a1"), retried("a1"), sent("a1"), accepted("a1"), rested()],
    ],
    [
      "duplicate",
      "a1",
      "a message that was sent more often than it was replayed",
      [published("t", "a1"), sent("a1"), replayed("a1"), accepted("a1"), accepted("a1"), rested({ done: ["a1"] })],
      { keep: true },
    ],
    [
      "duplicate",
      "a1",
      "a message that was sent again before it was replayed",
      [published("t", "a1"), sent("a1"), accepted("a1"), replayed("a1"), rested({ done: ["a1"] })],
      { keep: true },
    ],
    [
      "duplicate",
      "a1",
      "a message that was delivered again before it was sent again",
      [published("t", "a1"), sent("a1"), delivered("a1"), replayed("a1"), accepted("a1"), rested({ done: ["a1"] })],
      { keep: true },
    ],
    [
      "order",
      "a1 a2",
      "a message behind a parked one that was sent without a later release",
      [published("t", "a1", "a2"), released("a"), parked("a1"), sent("a2"), rested({ parked: ["a1"] })],
      { holdParked: true },
    ],
    [
      "undrained",
      "a2",
      "a message that was released, and not sent",
      [published("t", "a1", "a2"), parked("a1"), released("a"), rested({ parked: ["a1"], wait: ["a2"] })],
      { holdParked: true },
    ],
    ["stale-write", "", "a write under an old epoch", [wrote(2, 3), rested()]],
    ["stale-write", "", "a write under a future epoch", [wrote(4, 3), rested()]],
    [
      "unstable-id",
      "a1",
      "an id in two transactions",
      [published("t", "a1"), published("u", "a1"), sent("a1"), rested()],
    ],
    ["unstable-id", "a1", "an id twice in one", [published("t", "a1", "a1"), sent("a1"), rested()]],
    ["open-end", "a1", "a transaction that appends and does not end", [appended("t", "a1"), rested()]],
    [
      "open-end",
      "a1",
      "a transaction that appends under the name of an ended one",
      [committed("t"), appended("t", "a1"), rested()],
    ],
    [
      "open-end",
      "a1",
      "a transaction that has an effect and does not end",
      [published("t", "a1"), sent("a1"), effect("a1", "h"), rested()],
    ],
    ["open-end", "", "a box that was never read", [published("t", "a1"), sent("a1")]],
  ];
  it.each(broken)("%s (%s): %s", (rule, ids, _, steps, promise) => {
    expect(found(steps, promise)).toEqual([`${rule}: ${ids}`]);
  });

  const other = { ...message("a1"), digest: "another" };
  const moved = { ...message("a1"), key: "b" };
  const { key: _, ...unkeyed } = message("a1");
  it.each([
    ["content", other],
    ["key", moved],
    ["no key", unkeyed],
  ])("altered: another %s, as it is sent and as it is delivered", (_, sight) => {
    const asSent: HistoryEvent = { what: "accepted", box, message: sight };
    const asGot: HistoryEvent = { what: "delivered", consumer, message: sight };
    expect(found([published("t", "a1"), asSent, handled("a1"), rested()])).toEqual(["altered: a1"]);
    expect(found([published("t", "a1"), accepted("a1"), asGot, effect("a1"), committed("h-a1"), rested()])).toEqual([
      "altered: a1",
    ]);
    expect(found([asSent, asGot, rested()])).toEqual(["ghost: a1"]);
  });

  it("no alteration if one of two messages with one id has the data", () => {
    const again: HistoryEvent = { what: "appended", tx: "u", box, message: other };
    const asSent: HistoryEvent = { what: "accepted", box, message: other };
    const steps = [published("t", "a1"), again, committed("u"), asSent, handled("a1"), rested()];
    expect(found(steps)).toEqual(["unstable-id: a1"]);
  });

  it("a ghost whose transaction never ended, and its open end", () => {
    const steps = [appended("t", "a1"), accepted("a1"), rested()];
    expect(found(steps)).toEqual(["open-end: a1", "ghost: a1"]);
  });

  it("a ghost that is still to be sent, and that fact", () => {
    expect(found([rested({ pending: ["a1"] })])).toEqual(["ghost: a1", "undrained: a1"]);
    expect(found([rested({ wait: ["a1"] })])).toEqual(["ghost: a1", "undrained: a1"]);
    expect(found([appended("t", "a1"), rolledBack("t"), rested({ wait: ["a1"] })])).toEqual([
      "ghost: a1",
      "undrained: a1",
    ]);
  });

  it("a ghost where it first shows", () => {
    const events = [
      delivered("a1"),
      accepted("a1"),
      parked("a1"),
      effect("a1"),
      committed("h-a1"),
      rested({ done: ["a1"] }),
    ];
    expect(check(events, { keep: true })).toMatchObject([{ rule: "ghost", at: 0 }]);
    expect(check(events.slice(1), { keep: true })).toMatchObject([
      { rule: "ghost", at: 0, text: expect.stringContaining("accepted") },
    ]);
    expect(check(events.slice(2), { keep: true })).toMatchObject([
      { rule: "ghost", at: 0, text: expect.stringContaining("parked") },
    ]);
    expect(check(events.slice(3), { keep: true })).toMatchObject([
      { rule: "ghost", at: 1, text: expect.stringContaining("effect") },
    ]);
  });

  it("a message from another box than its consumer's", () => {
    const events: HistoryEvent[] = [
      { what: "appended", tx: "t", box: "audit", message: message("a1") },
      committed("t"),
      delivered("a1"),
      rested(),
    ];
    expect(found(events)).toEqual(["ghost: a1"]);
  });

  it("a message for the consumer of another promised box, and a ghost behind an unread box", () => {
    const contents = { pending: [], wait: [], parked: ["b9"], done: [] };
    const events = [...published("t", "a1"), ...sent("a1"), ...handled("a1", "ledger")];
    events.push({ what: "rested", box: "refunds", contents });
    const boxes: BoxPromise[] = [
      { box, order: "key", consumers: [{ consumer }] },
      { box: "refunds", order: "key", consumers: [{ consumer: "ledger" }] },
    ];
    expect(checkHistory(events, { boxes }).map(({ rule, ids }) => `${rule}: ${ids}`)).toEqual([
      "ghost: a1",
      "ghost: b9",
      "open-end: ",
    ]);
  });

  it("a sent message without an effect, once for each consumer", () => {
    const consumers = [{ consumer }, { consumer: "shipping" }];
    expect(texts([published("t", "a1"), accepted("a1"), rested()], { consumers })).toEqual([
      "a1, accepted at event 2, has no effect of billing, which has not refused it.",
      "a1, accepted at event 2, has no effect of shipping, which has not refused it.",
    ]);
  });

  it("a lost message in a `done` that should be empty", () => {
    expect(found([published("t", "a1"), rested({ done: ["a1"] })])).toEqual(["lost: a1", "misplaced: a1"]);
  });

  it("a message in two places that is still to be sent", () => {
    const steps = [published("t", "a1"), parked("a1"), rested({ pending: ["a1"], parked: ["a1"] })];
    expect(found(steps)).toEqual(["misplaced: a1", "undrained: a1"]);
    expect(found([published("t", "a1"), rested({ pending: ["a1", "a1"] })])).toEqual([
      "misplaced: a1",
      "undrained: a1 a1",
    ]);
  });

  it("each message that was sent too early, with the one that blocked it longest", () => {
    const steps = [published("t", "a1"), published("u", "a2"), published("v", "a3"), sent("a3", "a2", "a1"), rested()];
    expect(found(steps)).toEqual(["order: a1 a3", "order: a1 a2"]);
    const crossed = [
      published("t", "a1"),
      published("u", "a2"),
      published("v", "a3"),
      sent("a3", "a1", "a2"),
      rested(),
    ];
    expect(found(crossed)).toEqual(["order: a2 a3"]);
    const inTx = [published("t", "a1"), published("u", "a2", "a3"), sent("a1", "a3", "a2"), rested()];
    expect(found(inTx)).toEqual(["order: a2 a3"]);
    const inOneTx = [published("u", "a1", "a2", "a3"), sent("a1", "a3", "a2"), rested()];
    expect(found(inOneTx)).toEqual(["order: a2 a3"]);
    const beforeTx = [published("t", "a1"), published("u", "a2", "a3"), sent("a2", "a3", "a1"), rested()];
    expect(found(beforeTx)).toEqual(["order: a1 a2", "order: a1 a3"]);
    const longTx = [published("u", "a1", "a2", "a3"), sent("a2", "a3", "a1"), rested()];
    expect(found(longTx)).toEqual(["order: a1 a2", "order: a1 a3"]);
  });

  it("an overtaking under two promises once", () => {
    const steps = [published("t", "a1"), published("u", "a2"), sent("a2", "a1"), rested()];
    expect(found(steps, { order: "total", strictKeyOrder: true })).toEqual(["order: a1 a2"]);
  });

  it("a message that overtakes one that is never sent, and that one", () => {
    const steps = [published("t", "a1", "a2"), sent("a2"), rested({ pending: ["a1"] })];
    expect(found(steps)).toEqual(["order: a1 a2", "undrained: a1"]);
    expect(found([published("t", "a1", "a2"), sent("a2"), rested()])).toEqual(["order: a1 a2", "lost: a1"]);
  });

  it("an effect before a missing one, and the missing one", () => {
    const steps = [published("t", "a1", "a2"), accepted("a1"), sent("a2"), rested()];
    expect(found(steps, inOrder)).toEqual(["effect-order: a1 a2", "unhandled: a1"]);
  });

  it("the order of one consumer's effects, when another has none to keep", () => {
    const steps = [
      published("t", "a1", "a2"),
      [accepted("a1"), accepted("a2")],
      [...handled("a2"), ...handled("a1")],
      [...handled("a1", "shipping"), ...handled("a2", "shipping")],
      rested(),
    ];
    const both = (billing: boolean) => ({
      consumers: [
        { consumer, effectsInOrder: billing },
        { consumer: "shipping", effectsInOrder: !billing },
      ],
    });
    expect(found(steps, both(true))).toEqual(["effect-order: a1 a2"]);
    expect(found(steps, both(false))).toEqual([]);
  });

  it("each duplicate, up to the first fault", () => {
    const again = [accepted("a1"), delivered("a1")];
    const steps = [published("t", "a1"), sent("a1"), accepted("a1"), accepted("a1"), fault, accepted("a1"), fault];
    expect(found([...steps, again, rested()])).toEqual(["duplicate: a1", "duplicate: a1"]);
    const deliveries = [
      published("t", "a1"),
      sent("a1"),
      delivered("a1"),
      delivered("a1"),
      fault,
      delivered("a1"),
      fault,
    ];
    expect(found([...deliveries, rested()])).toEqual(["duplicate: a1", "duplicate: a1"]);
  });

  it("a second delivery of a message that was never accepted", () => {
    expect(found([delivered("a1"), delivered("a1"), rested()])).toEqual(["ghost: a1", "duplicate: a1"]);
    const steps = [published("t", "a1"), handled("a1"), delivered("a1"), parked("a1"), rested({ parked: ["a1"] })];
    expect(found(steps)).toEqual(["duplicate: a1"]);
  });

  it("only the missing rest of a box without one", () => {
    expect(found([published("t", "a1"), accepted("a1")])).toEqual(["open-end: "]);
  });

  it("the last rest to be the one that counts", () => {
    const steps = [published("t", "a1"), rested({ pending: ["a1"] }), sent("a1"), rested()];
    expect(check(steps)).toEqual([]);
  });
});

describe("tells", () => {
  it.each<[text: string, ...Case]>([
    ["a1, committed at event 1, is gone from orders, but was never accepted.", "", [published("t", "a1"), rested()]],
    [
      "a1, committed at event 1, is in done of orders, but was never accepted.",
      "",
      [published("t", "a1"), rested({ done: ["a1"] })],
      { keep: true },
    ],
    [
      "In wait of orders there is still b1, b2, b3, b4, b5 and 1 more.",
      "",
      [published("t", "b1", "b2", "b3", "b4", "b5", "b6"), rested({ wait: ["b1", "b2", "b3", "b4", "b5", "b6"] })],
    ],
    [
      "In wait of orders there is still b1, b2, b3, b4, b5.",
      "",
      [published("t", "b1", "b2", "b3", "b4", "b5"), rested({ wait: ["b1", "b2", "b3", "b4", "b5"] })],
    ],
    [
      "a1 was accepted from orders at event 2, but its transaction t rolled back at 1.",
      "",
      [appended("t", "a1"), rolledBack("t"), accepted("a1"), rested()],
    ],
    [
      "a1 was delivered to billing at event 4, but its transaction u rolled back at 3.",
      "",
      [appended("t", "a1"), rolledBack("t"), appended("u", "a1"), rolledBack("u"), delivered("a1"), rested()],
    ],
    ["a1 was accepted from orders at event 0, but it was never appended.", "", [accepted("a1"), rested()]],
    ["a1 is in parked of orders at event 0, but it was never appended.", "", [rested({ parked: ["a1"] })]],
    [
      "a1 is in parked and in parked of orders, instead of 1 times.",
      "",
      [published("t", "a1"), parked("a1"), rested({ parked: ["a1", "a1"] })],
    ],
    [
      "a1, accepted at event 2, is not in done of orders, nor anywhere else there.",
      "",
      [published("t", "a1"), sent("a1"), rested()],
      { keep: true },
    ],
    ["a1 is in done of orders, which keeps nothing.", "", [published("t", "a1"), sent("a1"), rested({ done: ["a1"] })]],
    [
      "billing has 2 effects of a1: of events 5 and 7.",
      "",
      [published("t", "a1"), sent("a1"), effect("a1", "h"), committed("h"), rested()],
    ],
    [
      "a2 of key a was accepted at event 4, before a1 of event 0.",
      "",
      [published("t", "a1"), published("u", "a2"), sent("a2", "a1"), rested()],
    ],
    [
      "b1 was accepted at event 4, before a1 of event 0.",
      "",
      [published("t", "a1"), published("u", "b1"), sent("b1", "a1"), rested()],
      { order: "total" },
    ],
    [
      "a2 of key a had its effect of billing at event 7, before a1 of event 0.",
      "",
      [published("t", "a1", "a2"), accepted("a1"), sent("a2"), handled("a1"), rested()],
      inOrder,
    ],
    [
      "a1 was accepted again from orders at event 6, before any fault and without an operator.",
      "",
      [published("t", "a1"), sent("a1"), accepted("a1"), rested()],
    ],
    [
      "a1 was delivered again to billing at event 6, before any fault and without an operator.",
      "",
      [published("t", "a1"), sent("a1"), delivered("a1"), rested()],
    ],
    ["Lane 7 of orders was written under epoch 2 when its own was 3, at event 0.", "", [wrote(2, 3), rested()]],
    [
      "a1, as orders has sent it at event 2, has another content than when it was appended at 0.",
      "",
      [
        published("t", "a1"),
        { what: "accepted", box, message: { id: "a1", key: "a", digest: "" } },
        handled("a1"),
        rested(),
      ],
    ],
    [
      "a1, as orders has sent it at event 2, has another key (b, not a) than when it was appended at 0.",
      "",
      [
        published("t", "a1"),
        { what: "accepted", box, message: { ...message("a1"), key: "b" } },
        handled("a1"),
        rested(),
      ],
    ],
    [
      "a1 was appended to orders at events 0 and 2, and both were committed.",
      "",
      [published("t", "a1"), published("u", "a1"), sent("a1"), rested()],
    ],
    ["Transaction t, at work since event 0, neither committed nor rolled back.", "", [appended("t", "a1"), rested()]],
    ["Nobody has looked what orders holds at rest.", "", []],
  ])("%s", (text, _, steps, promise) => {
    expect(texts(steps, promise)).toEqual([text]);
  });

  it("why a ghost is one when its transaction never ended", () => {
    expect(texts([appended("t", "a1"), accepted("a1"), rested()])).toContain(
      "a1 was accepted from orders at event 1, but its transaction t never ended.",
    );
  });

  it("ten of each rule, the earliest first", () => {
    const ids = Array.from({ length: 12 }, (_, number) => `a${number}`);
    const steps = [wrote(1, 2), published("t", ...ids), sent(...ids.toReversed()), wrote(1, 2), rested()];
    const violations = check(steps);
    expect(violations.map(({ rule }) => rule)).toEqual([
      "stale-write",
      ...ids.slice(2).map(() => "order"),
      "stale-write",
    ]);
    expect(violations.slice(1, 3).map(({ ids }) => ids)).toEqual([
      ["a0", "a11"],
      ["a0", "a10"],
    ]);
    expect(violations.map(({ at }) => at)).toEqual(violations.map(({ at }) => at).toSorted((a, b) => a - b));
  });

  it("the event where it shows", () => {
    const at = (steps: readonly Step[], promise?: Partial<BoxPromise>) => check(steps, promise).map((one) => one.at);
    expect(at([published("t", "a1")])).toEqual([2]);
    expect(at([fault, appended("t", "a1"), fault, rested()])).toEqual([1]);
    expect(at([published("t", "a1"), appended("u", "a1"), fault, committed("u"), sent("a1"), rested()])).toEqual([4]);
    expect(at([published("t", "a1"), sent("a1"), effect("a1", "h"), committed("h"), rested()])).toEqual([7]);
    expect(at([published("t", "a1"), rested()])).toEqual([2]);
    expect(at([published("t", "a1"), accepted("a1"), fault, rested()])).toEqual([4]);
    expect(at([published("t", "a1"), sent("a1"), rested()], { keep: true })).toEqual([6]);
    expect(at([published("t", "a1"), rested({ wait: ["a1"] })])).toEqual([2]);
  });
});

it("checks a long history of one key, all in the wrong order, in time", () => {
  const ids = Array.from({ length: 50_000 }, (_, number) => `a${number}`);
  const steps = ids.flatMap((id) => published(id, id));
  for (const id of ids.toReversed()) steps.push(accepted(id));
  for (const id of ids) steps.push(...handled(id));
  steps.push(rested());
  // Comparing each pair would exceed the test's time limit.
  expect(checkHistory(steps, promised(inOrder))).toHaveLength(10);
});
