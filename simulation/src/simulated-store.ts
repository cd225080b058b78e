import { inboxOf, type Store } from "postbox";
import { type MemoryDatabase, type MemoryTransaction, memoryStore } from "postbox/memory";
import type { Box, Row, Settlement } from "postbox/store";
import type { Chance } from "./chance.js";
import type { Link } from "./link.js";
import { consumers } from "./orders.js";
import { nameOf, type Recorder, sightingOf } from "./recorder.js";
import type { Listeners } from "./simulated-notifier.js";

/** What an observer knows about a box: the owner of each lane, and the rows that have left `pending`. */
class BoxFacts {
  readonly epochs = new Map<number, number>();
  readonly settled = new Set<number>();
  readonly dropped = new Set<number>();
  /** The keys that parked messages hold until an operator releases them. */
  readonly held = new Set<string | undefined>();
}

/** What an observer knows about a database. */
export class DatabaseFacts {
  readonly #boxes = new Map<string, BoxFacts>();
  /** The open transactions. */
  readonly open = new Set<string>();
  /** The listeners for appends, in all processes. */
  readonly listeners: Listeners = new Set();
  #transactions = 0;

  of(box: string): BoxFacts {
    const facts = this.#boxes.get(box) ?? new BoxFacts();
    this.#boxes.set(box, facts);
    return facts;
  }

  nextTransaction(): string {
    return `t${++this.#transactions}`;
  }
}

export interface SimulatedStoreOptions {
  readonly database: MemoryDatabase;
  readonly facts: DatabaseFacts;
  readonly link: Link;
  readonly recorder: Recorder;
  readonly chance: Chance;
  /** The probability that the client never learns the outcome of a COMMIT. */
  commitUnknown(): number;
  /** Whether consumers receive straight from the box: a row that is settled as sent has then arrived. */
  readonly direct: boolean;
}

export interface SimulatedStore extends Store<MemoryTransaction> {
  /** The name of a transaction in the history. */
  nameOf(tx: MemoryTransaction): string;
}

/**
 * The memory store at the end of a link. Every statement travels, executes in one step, and its answer travels back;
 * either direction may fail. When its process crashes, its open transactions are rolled back once the database notices.
 */
export function simulatedStore(options: SimulatedStoreOptions): SimulatedStore {
  const { database, facts, link, recorder, chance } = options;
  const { world, process } = link;
  const inner = memoryStore({ database });
  const names = new WeakMap<MemoryTransaction, string>();
  const open = new Set<string>();
  const txName = (tx: MemoryTransaction) => names.get(tx) ?? "?";
  const ended = (name: string, what: "committed" | "rolled-back") => {
    if (!open.delete(name)) return;
    facts.open.delete(name);
    recorder.record({ what, tx: name });
  };
  process.onDeath(() => {
    world.at(chance.is(0.2) ? chance.between(500, 6_000) : chance.between(0, 50), () => {
      inner.crash();
      for (const name of [...open]) ended(name, "rolled-back");
    });
  });

  async function transaction<R>(work: (tx: MemoryTransaction) => Promise<R>, ...rest: [] | [object]): Promise<R> {
    await link.call(async () => {});
    const name = facts.nextTransaction();
    const unknown = chance.is(options.commitUnknown()) ? chance.pick(["committed", "rolled back"]) : undefined;
    let cutOff: typeof unknown;
    open.add(name);
    facts.open.add(name);
    const result = inner.transaction(
      async (tx) => {
        names.set(tx, name);
        tx.defer(() => ended(name, "committed"));
        const value = await work(tx);
        if (link.isCut) cutOff = chance.pick(["committed", "rolled back"] as const);
        // COMMIT is in flight: it takes effect or not, even if the process crashes meanwhile.
        await new Promise<void>((resolve) => link.there(resolve));
        if ((cutOff ?? unknown) === "rolled back") throw new Error("connection reset during COMMIT");
        return value;
      },
      ...rest,
    );
    try {
      const value = await result;
      await new Promise<void>((resolve) => link.back(resolve));
      if ((cutOff ?? unknown) === "committed") {
        recorder.meet(cutOff === undefined ? "a COMMIT happened whose answer was lost" : "a COMMIT was cut off");
        throw new Error("connection reset during COMMIT");
      }
      return value;
    } catch (error) {
      ended(name, "rolled-back");
      throw error;
    }
  }

  return {
    name: "simulated",
    nameOf: txName,
    transaction,
    current: () => inner.current(),
    append: (tx, box, messages, appendOptions) =>
      link.call(() => {
        const done = inner.append(tx, box, messages, appendOptions);
        if (open.has(txName(tx))) {
          for (const message of messages) {
            recorder.record({ what: "appended", tx: txName(tx), box, message: sightingOf(message) });
          }
        }
        return done;
      }),
    cancel: (...args) => link.call(() => inner.cancel(...args)),
    tick: (...args) => link.call(() => inner.tick(...args)),
    inbox: {
      remember: (tx, ...args) =>
        link.call(async () => {
          const remembered = await inner.inbox.remember(tx, ...args);
          if (remembered === "too-old") recorder.meet("a message was older than an inbox remembers");
          return remembered;
        }),
      keep: (...args) =>
        link.call(async () => {
          const kept = await inner.inbox.keep(...args);
          if (kept.includes("duplicate")) recorder.meet("an inbox knew what came again");
          return kept;
        }),
      setAside: (arrival, aside, asideOptions) =>
        link.call(async () => {
          const remembered = await inner.inbox.setAside(arrival, aside, asideOptions);
          const { consumer, message } = arrival;
          recorder.meet("an inbox has kept what failed");
          if (aside.to === "parked" && (remembered === "new" || aside.anyway)) {
            recorder.record({ what: "refused", consumer, id: message.id, outright: aside.anyway === true });
          }
          return remembered;
        }),
      handled: (tx, ...args) =>
        link.call(async () => {
          const handled = await inner.inbox.handled(tx, ...args);
          recorder.meet(
            handled ? "a message was handled from an inbox" : "a message of an inbox was another's by then",
          );
          return handled;
        }),
    },
    isConflict: (error) => inner.isConflict(error),
    isUnavailable: (error) => error instanceof Error && error.message.startsWith("connection "),
    isRefused: () => false,
    box: (name) => simulatedBox(inner.box(name), name, options),
    afterCommit: (tx, task) => inner.afterCommit?.(tx, task) ?? false,
    admin: inner.admin,
    purge: (purgeOptions) =>
      link.call(async () => {
        const purged = await inner.purge(purgeOptions);
        if (purged.removed > 0 && purgeOptions.box !== undefined) recorder.meet("an inbox has forgotten something");
        return purged;
      }),
    health: (healthOptions) => link.call(() => inner.health(healthOptions)),
    migrate: () => inner.migrate(),
  };
}

function simulatedBox(inner: Box, box: string, options: SimulatedStoreOptions): Box {
  const { link, recorder, direct } = options;
  const facts = options.facts.of(box);
  const consumer = consumers.find((each) => box === inboxOf(each));
  const brought = (rows: readonly Row[], settledBefore: number) => {
    if (
      facts.settled.size > settledBefore &&
      rows.some(({ position, waiting }) => !waiting && facts.settled.has(position))
    )
      recorder.meet("a read brought what was settled meanwhile");
  };
  /** A read whose rows may be settled before its answer arrives. */
  const reading = async <R>(read: () => Promise<R>, rowsOf: (found: R) => readonly Row[]): Promise<R> => {
    let settledBefore = 0;
    const found = await link.call(() => {
      settledBefore = facts.settled.size;
      return read();
    });
    brought(rowsOf(found), settledBefore);
    for (const row of rowsOf(found)) note(`reads ${wordsFor(row)}`);
    return found;
  };
  return {
    renew: (...args) => link.call(() => inner.renew(...args)),
    own: (...args) =>
      link.call(async () => {
        const lanes = await inner.own(...args);
        for (const { lane, epoch, clean } of lanes) {
          facts.epochs.set(lane, epoch);
          if (!clean) recorder.meet("a lane was taken from one who had died");
        }
        if (lanes.length > 0) note(`owns ${lanes.length} lanes more`);
        return lanes;
      }),
    release: (...args) => link.call(() => inner.release(...args)),
    read: async (lanes, readOptions, ...rest) => {
      const found = await reading(
        () => inner.read(lanes, readOptions, ...rest),
        ({ rows }) => rows,
      );
      const isCut = lanes.some(({ lane, limit }) => {
        return found.more.has(lane) && found.rows.filter((row) => row.lane === lane).length < limit;
      });
      if (isCut) recorder.meet("a read ended at its bytes");
      return found;
    },
    due: (...args) =>
      reading(
        () => inner.due(...args),
        (rows) => rows,
      ),
    late: (...args) =>
      reading(
        () => inner.late(...args),
        ({ rows }) => rows,
      ),
    promote: (limit) => link.call(() => inner.promote(limit)),
    suspect: (...args) => link.call(() => inner.suspect(...args)),
    settle: (lanes, settlements, settleOptions) =>
      link.call(async () => {
        const gone = await goneAmong(settlements);
        const settled = await inner.settle(lanes, settlements, settleOptions);
        for (const { lane, epoch } of lanes) {
          if (!settled.standing.has(lane)) recorder.meet("a settle came after its lane was lost");
          else if (settlements.some(({ row }) => row.lane === lane)) {
            recorder.record({ what: "wrote", box, lane, epoch, current: facts.epochs.get(lane) ?? 0 });
          }
        }
        for (const { row, to } of settlements) {
          note(`settles ${wordsFor(row)}: ${settled.standing.has(row.lane) ? to : "not any more"}`);
        }
        for (const settlement of settlements) {
          if (settled.standing.has(settlement.row.lane) && !gone.has(settlement)) became(settlement);
        }
        return settled;
      }),
  };

  /** Returns the rows to be dropped that no longer exist: an operator was faster, or the settle is repeated. */
  async function goneAmong(settlements: readonly Settlement[]): Promise<ReadonlySet<Settlement>> {
    const gone = new Set<Settlement>();
    for (const settlement of settlements) {
      const { lane, position, waiting } = settlement.row;
      if (settlement.to !== "dropped" || waiting) continue;
      const { rows } = await inner.read([{ lane, after: position - 1, limit: 1 }]);
      if (rows[0]?.position !== position) gone.add(settlement);
    }
    return gone;
  }

  function note(text: string): void {
    recorder.note(link.process.name, text);
  }

  function became(settlement: Settlement): void {
    const { row, to } = settlement;
    if (!row.waiting && to !== "pending") facts.settled.add(row.position);
    if (consumer !== undefined) {
      if (to === "parked") recorder.record({ what: "refused", consumer, id: row.message.id });
      return;
    }
    if (to === "sent" && direct) {
      recorder.meet("a box was handled without a broker");
      recorder.record({ what: "accepted", box, message: sightingOf(row.message) });
    }
    if (to === "parked" && settlement.hold) facts.held.add(row.message.key);
    if (to === "parked") recorder.record({ what: "parked", box, id: row.message.id });
    // A settle whose answer was lost is repeated, and drops nothing more.
    if (to === "dropped" && !facts.dropped.has(row.position)) {
      facts.dropped.add(row.position);
      recorder.record({ what: "discarded", box, id: row.message.id });
    }
    if (to === "wait" && settlement.retryInMs === undefined && !row.held && !row.waiting) {
      recorder.meet("a message was read before the failure ahead of it was stored");
    }
  }
}

function wordsFor({ message, position, waiting, held, attempts, crashes }: Row): string {
  const more = [
    waiting && "waiting",
    held && "held",
    attempts > 0 && `${attempts} tries`,
    crashes > 0 && `${crashes} crashes`,
  ];
  return `${nameOf(message)} at ${[position, ...more.filter(Boolean)].join(", ")}`;
}
