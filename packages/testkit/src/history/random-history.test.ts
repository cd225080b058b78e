import fc from "fast-check";
import { expect, it } from "vitest";
import { checkHistory, type Rule } from "./check-history.js";
import type { BoxPromise, HistoryEvent, Promises, Sighting } from "./history.js";

const box = "orders";
const consumers = [{ consumer: "billing", effectsInOrder: true }, { consumer: "shipping" }];

const flavours: readonly Omit<BoxPromise, "box" | "consumers">[] = [
  { order: "key" },
  { order: "key", strictKeyOrder: true },
  { order: "key", keep: true },
  { order: "key", holdParked: true },
  { order: "key", holdParked: true, keep: true, strictKeyOrder: true },
  { order: "total" },
  { order: "total", strictKeyOrder: true, keep: true },
  { order: "none", keep: true },
];

interface Letter {
  readonly message: Sighting;
  readonly tx: string;
  readonly appendedAt: number;
  committedAt: number;
  isAccepted: boolean;
  wasParked: boolean;
  isDiscarded: boolean;
}

/** A world that keeps every promise, driven by random numbers: each step takes as many as it needs. */
class SoundWorld {
  readonly history: HistoryEvent[] = [];
  readonly letters = new Map<string, Letter>();
  readonly #open = new Map<string, Letter[]>();
  #pending: Letter[] = [];
  readonly #parked: Letter[] = [];
  readonly #done: Letter[] = [];
  readonly #queues = consumers.map(({ consumer, effectsInOrder = false }) => ({
    consumer,
    effectsInOrder,
    waiting: [] as Letter[],
    known: new Set<string>(),
  }));
  #number = 0;
  #hadFault = false;

  constructor(
    readonly promise: BoxPromise,
    readonly draw: (below: number) => number,
  ) {}

  step(): void {
    const steps = [
      this.#append,
      this.#append,
      this.#append,
      this.#commit,
      this.#commit,
      this.#rollBack,
      this.#send,
      this.#send,
      this.#send,
      this.#sendUnconfirmed,
      this.#park,
      this.#retry,
      this.#discard,
      this.#replay,
      this.#handle,
      this.#handle,
      this.#handle,
      this.#refuse,
      this.#failToHandle,
      this.#write,
    ];
    this.#pick(steps)?.call(this);
  }

  rest(): void {
    while (this.#open.size > 0) this.#commit();
    while (this.#eligible().length > 0) this.#send();
    while (this.#queues.some(({ waiting }) => waiting.length > 0)) this.#handle();
    const ids = (letters: readonly Letter[]) => letters.map(({ message }) => message.id);
    const wait = ids(this.#pending).filter(() => this.draw(2) === 0);
    const pending = ids(this.#pending).filter((id) => !wait.includes(id));
    this.#tell({ what: "rested", box, contents: { pending, wait, parked: ids(this.#parked), done: ids(this.#done) } });
  }

  #tell(event: HistoryEvent): number {
    return this.history.push(event) - 1;
  }

  #pick<T>(list: readonly T[]): T | undefined {
    return list[this.draw(list.length)];
  }

  #take<T>(list: T[], item: T | undefined = this.#pick(list)): T | undefined {
    if (item !== undefined) list.splice(list.indexOf(item), 1);
    return item;
  }

  #fault(): void {
    this.#hadFault = true;
    this.#tell({ what: "fault", kind: "of chance" });
  }

  #append(): void {
    const number = this.#number++;
    const tx = (this.draw(3) > 0 && this.#pick([...this.#open.keys()])) || `t${number}`;
    const key = this.#pick(["a", "b", undefined]);
    const message = { id: `m${number}`, digest: `d${number}`, ...(key && { key }) };
    const letter = {
      message,
      tx,
      appendedAt: this.#tell({ what: "appended", tx, box, message }),
      committedAt: Number.POSITIVE_INFINITY,
      isAccepted: false,
      wasParked: false,
      isDiscarded: false,
    };
    this.#open.set(tx, [...(this.#open.get(tx) ?? []), letter]);
  }

  #commit(): void {
    const [tx, letters] = this.#pick([...this.#open]) ?? [];
    if (tx === undefined || letters === undefined) return;
    this.#open.delete(tx);
    const at = this.#tell({ what: "committed", tx });
    for (const letter of letters) {
      letter.committedAt = at;
      this.letters.set(letter.message.id, letter);
      this.#pending.push(letter);
    }
  }

  #rollBack(): void {
    const tx = this.#pick([...this.#open.keys()]);
    if (tx === undefined) return;
    this.#open.delete(tx);
    this.#tell({ what: "rolled-back", tx });
  }

  #eligible(): Letter[] {
    const blocking = [...this.letters.values()].filter(
      ({ isAccepted, isDiscarded, wasParked }) =>
        !isAccepted && !isDiscarded && (this.promise.holdParked || !wasParked),
    );
    return this.#pending.filter((letter) => !blocking.some((one) => isBefore(one, letter, this.promise)));
  }

  #accept(letter: Letter): void {
    letter.isAccepted = true;
    this.#tell({ what: "accepted", box, message: letter.message });
    for (const { waiting } of this.#queues) waiting.push(letter);
  }

  #send(): void {
    const letter = this.#pick(this.#eligible());
    if (letter === undefined) return;
    this.#accept(letter);
    this.#take(this.#pending, letter);
    if (this.promise.keep) this.#done.push(letter);
  }

  #sendUnconfirmed(): void {
    const letter = this.#pick(this.#eligible());
    if (letter === undefined) return;
    this.#fault();
    this.#accept(letter);
  }

  #park(): void {
    const letter = this.#take(this.#pending, this.#pick(this.#eligible()));
    if (letter === undefined || this.draw(2) === 0) return void (letter && this.#pending.push(letter));
    letter.wasParked = true;
    this.#parked.push(letter);
    this.#tell({ what: "parked", box, id: letter.message.id });
  }

  #retry(): void {
    const letter = this.#take(this.#parked);
    if (letter === undefined) return;
    this.#pending.push(letter);
    this.#tell({ what: "retried", box, id: letter.message.id });
  }

  #discard(): void {
    const letter = this.#take(this.#parked);
    if (letter === undefined) return;
    letter.isDiscarded = true;
    this.#tell({ what: "discarded", box, id: letter.message.id });
  }

  #replay(): void {
    const letter = this.#pick(this.#done);
    if (letter === undefined) return;
    this.#pending.push(letter);
    this.#tell({ what: "replayed", box, id: letter.message.id });
  }

  #deliver() {
    const queue = this.#pick(this.#queues.filter(({ waiting }) => waiting.length > 0));
    if (queue === undefined) return undefined;
    const letter = (queue.effectsInOrder ? queue.waiting[0] : this.#pick(queue.waiting)) as Letter;
    this.#tell({ what: "delivered", consumer: queue.consumer, message: letter.message });
    return { queue, letter };
  }

  #handle(): void {
    const { queue, letter } = this.#deliver() ?? {};
    if (queue === undefined || letter === undefined) return;
    this.#take(queue.waiting, letter);
    if (queue.known.has(letter.message.id)) return;
    queue.known.add(letter.message.id);
    this.#effect(queue.consumer, letter, "committed");
  }

  #refuse(): void {
    const { queue, letter } = this.#deliver() ?? {};
    if (queue === undefined || letter === undefined) return;
    this.#take(queue.waiting, letter);
    if (queue.known.has(letter.message.id)) return;
    queue.known.add(letter.message.id);
    this.#tell({ what: "refused", consumer: queue.consumer, id: letter.message.id });
  }

  #failToHandle(): void {
    if (!this.#hadFault) return;
    const { queue, letter } = this.#deliver() ?? {};
    if (queue === undefined || letter === undefined) return;
    this.#effect(queue.consumer, letter, "rolled-back");
  }

  #effect(consumer: string, { message }: Letter, end: "committed" | "rolled-back"): void {
    const tx = `h${this.#number++}`;
    this.#tell({ what: "effect", tx, consumer, id: message.id });
    this.#tell({ what: end, tx });
  }

  #write(): void {
    const epoch = this.draw(5);
    this.#tell({ what: "wrote", box, lane: this.draw(64), epoch, current: epoch });
  }
}

function isBefore(one: Letter, other: Letter, { order, strictKeyOrder }: BoxPromise): boolean {
  const isOneKey = one.message.key !== undefined && one.message.key === other.message.key;
  if (one === other || order === "none" || (order === "key" && !isOneKey)) return false;
  if (one.tx === other.tx) return one.appendedAt < other.appendedAt;
  if (strictKeyOrder && isOneKey && one.committedAt < other.committedAt) return true;
  return one.committedAt < other.appendedAt;
}

type Sabotage = (world: SoundWorld) => readonly HistoryEvent[] | undefined;

const concerns = (event: HistoryEvent, id: string) =>
  ("id" in event && event.id === id) || ("message" in event && event.message.id === id);
const without = (history: readonly HistoryEvent[], test: (event: HistoryEvent) => boolean) =>
  history.filter((event) => !test(event));
const beforeRest = (history: readonly HistoryEvent[], ...events: HistoryEvent[]) => history.toSpliced(-1, 0, ...events);

function any({ draw, letters }: SoundWorld, test: (letter: Letter) => boolean): Letter | undefined {
  const fitting = [...letters.values()].filter(test);
  return fitting[draw(fitting.length)];
}

/** Two messages in order, of which neither was ever set aside. */
function anyPair({ promise, letters, draw }: SoundWorld): readonly [Letter, Letter] | undefined {
  const sent = [...letters.values()].filter(({ isAccepted, wasParked }) => isAccepted && !wasParked);
  const pairs = sent.flatMap((one) =>
    sent.filter((other) => isBefore(one, other, promise)).map((other) => [one, other] as const),
  );
  return pairs[draw(pairs.length)];
}

function withContents(
  history: readonly HistoryEvent[],
  change: (part: "pending" | "wait" | "parked" | "done", ids: readonly string[]) => readonly string[],
): readonly HistoryEvent[] {
  return history.map((event) => {
    if (event.what !== "rested") return event;
    const { pending, wait, parked, done } = event.contents;
    const contents = {
      pending: change("pending", pending),
      wait: change("wait", wait),
      parked: change("parked", parked),
      done: change("done", done),
    };
    return { ...event, contents };
  });
}

const sabotages: Record<Rule, Sabotage> = {
  lost(world) {
    const letter = any(world, ({ isDiscarded }) => !isDiscarded);
    if (letter === undefined) return undefined;
    const { id } = letter.message;
    const history = without(world.history, (event) => event.what !== "appended" && concerns(event, id));
    return withContents(history, (_, ids) => ids.filter((one) => one !== id));
  },
  undrained(world) {
    // Without a key: nothing excuses it.
    const letter = any(world, ({ message }) => message.key === undefined);
    const part = world.draw(2) === 0 ? "pending" : "wait";
    if (letter === undefined) return undefined;
    return withContents(world.history, (name, ids) => (name === part ? [...ids, letter.message.id] : ids));
  },
  ghost(world) {
    const letter = any(world, ({ isAccepted }) => isAccepted);
    return (
      letter &&
      world.history.map((event) =>
        event.what === "committed" && event.tx === letter.tx ? { what: "rolled-back", tx: letter.tx } : event,
      )
    );
  },
  misplaced(world) {
    const letter = any(world, () => true);
    if (letter === undefined) return undefined;
    const { id } = letter.message;
    const rows = 1 + world.history.filter((event) => event.what === "replayed" && event.id === id).length;
    return withContents(world.history, (part, ids) =>
      part === "parked" ? [...ids, ...Array.from({ length: rows + 1 }, () => id)] : ids,
    );
  },
  twice(world) {
    const effects = world.history.filter((event) => event.what === "effect");
    const effect = effects[world.draw(effects.length)];
    if (effect === undefined) return undefined;
    const [one, other] = ["x1", "x2"] as const;
    const again = [one, other].flatMap((tx): HistoryEvent[] => [
      { ...effect, tx },
      { what: "committed", tx },
    ]);
    return beforeRest(world.history, ...again);
  },
  unhandled(world) {
    const letter = any(world, ({ isAccepted }) => isAccepted);
    const { consumer } = consumers[world.draw(2)] as { consumer: string };
    return (
      letter &&
      without(
        world.history,
        (event) =>
          (event.what === "effect" || event.what === "refused") &&
          event.consumer === consumer &&
          event.id === letter.message.id,
      )
    );
  },
  order(world) {
    const [one] = anyPair(world) ?? [];
    if (one === undefined) return undefined;
    const late: HistoryEvent = { what: "accepted", box, message: one.message };
    const early = (event: HistoryEvent) => event.what === "accepted" && concerns(event, one.message.id);
    return beforeRest(without(world.history, early), late);
  },
  "effect-order"(world) {
    const [one, other] = anyPair(world) ?? [];
    if (one === undefined || other === undefined) return undefined;
    const { consumer } = consumers[0] as { consumer: string };
    const isDone = (event: HistoryEvent) =>
      (event.what === "effect" || event.what === "refused") && event.consumer === consumer;
    const history = without(
      world.history,
      (event) => isDone(event) && (concerns(event, one.message.id) || concerns(event, other.message.id)),
    );
    const late = [other, one].flatMap(({ message }): HistoryEvent[] => [
      { what: "effect", tx: `x-${message.id}`, consumer, id: message.id },
      { what: "committed", tx: `x-${message.id}` },
    ]);
    return beforeRest(history, ...late);
  },
  duplicate(world) {
    const calm = without(world.history, ({ what }) => what === "fault");
    const what = world.draw(2) === 0 ? "accepted" : "delivered";
    const at = calm.findIndex((event) => event.what === what);
    const event = calm[at];
    return event && calm.toSpliced(at, 0, event);
  },
  "stale-write"(world) {
    const isWrite = (event: HistoryEvent) => event.what === "wrote";
    const at = world.history.findIndex(isWrite);
    return at < 0
      ? undefined
      : world.history.map((event) => (event.what === "wrote" ? { ...event, current: event.epoch + 1 } : event));
  },
  altered(world) {
    const what = world.draw(2) === 0 ? "accepted" : "delivered";
    const change = world.draw(2) === 0 ? { digest: "another" } : { key: "another" };
    const at = world.history.findLastIndex((event) => event.what === what);
    const event = world.history[at];
    if (event === undefined || !("message" in event)) return undefined;
    return world.history.with(at, { ...event, message: { ...event.message, ...change } });
  },
  "unstable-id"(world) {
    const letter = any(world, () => true);
    if (letter === undefined) return undefined;
    const { message } = letter;
    return [{ what: "appended", tx: "x", box, message }, { what: "committed", tx: "x" }, ...world.history];
  },
  "open-end"(world) {
    const isEnd = ({ what }: HistoryEvent) => what === "committed" || what === "rolled-back" || what === "rested";
    const ends = world.history.filter(isEnd);
    const end = ends[world.draw(ends.length)];
    return without(world.history, (event) => event === end);
  },
};

/** A world at rest, and the promises for its checker. */
const worlds = fc
  .tuple(fc.constantFrom(...flavours), fc.array(fc.nat(0x7fffffff), { minLength: 50, maxLength: 600, size: "max" }))
  .map(([flavour, numbers]) => {
    let drawn = 0;
    const draw = (below: number) => (numbers[drawn++ % numbers.length] as number) % Math.max(1, below);
    const world = new SoundWorld({ ...flavour, box, consumers }, draw);
    while (drawn < numbers.length) world.step();
    world.rest();
    const promises: Promises = { boxes: [world.promise] };
    return { world, promises };
  });

it("accepts any sound history", () => {
  fc.assert(
    fc.property(worlds, ({ world, promises }) => {
      expect(checkHistory(world.history, promises)).toEqual([]);
    }),
    { numRuns: 400 },
  );
});

it.each(Object.entries(sabotages))("finds a violation of %s in any history", (rule, sabotage) => {
  fc.assert(
    fc.property(worlds, ({ world, promises }) => {
      const broken = sabotage(world);
      fc.pre(broken !== undefined);
      expect(checkHistory(broken, promises).map((violation) => violation.rule)).toContain(rule);
    }),
    { numRuns: 60, maxSkipsPerRun: 20 },
  );
});
