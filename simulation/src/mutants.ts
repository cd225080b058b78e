/** A safeguard of the library, and the code without it. Files are those of the built packages. */
export interface Mutant {
  readonly guard: string;
  readonly file: string;
  /** The replacements. Each `from` occurs exactly once in the file. */
  readonly changes: readonly (readonly [from: string, to: string])[];
}

const relay = (path: string) => `node_modules/postbox/dist/relay/${path}.js`;

/** Every safeguard that the simulation must miss: without any one of these, some history breaks a rule. */
export const mutants: readonly Mutant[] = [
  {
    guard: "a settle checks the lane's epoch and writes in one step, under a lock",
    file: "simulation/dist/simulated-store.js",
    changes: [
      [
        "const settled = await inner.settle(lanes, settlements, settleOptions);",
        `const seen = lanes.filter(({ lane, epoch }) => facts.epochs.get(lane) === epoch);
         await new Promise((resolve) => link.there(resolve));
         const now = seen.map(({ lane }) => ({ lane, epoch: facts.epochs.get(lane) }));
         const settled = await inner.settle(now, settlements, settleOptions);`,
      ],
    ],
  },
  {
    guard: "a write under an old epoch changes nothing",
    file: "node_modules/postbox/dist/stores/rows/box-owners.js",
    changes: [["this.#lanes[lane]?.epoch === epoch", "true"]],
  },
  {
    guard: "a row read before its key was held is held, too",
    file: relay("ordering/window"),
    changes: [["(row.held || tooOld)", "row.held"]],
  },
  {
    guard: "a row whose key is held joins the rows that wait for the key",
    file: relay("ordering/window"),
    changes: [["(row.held || tooOld)", "false"]],
  },
  {
    guard: "positions that are settled during a read are remembered until the read ends",
    file: relay("reading/reads"),
    changes: [["(gone.get(lane)?.get(position) ?? 0) >= read", "false"]],
  },
  {
    guard: "the relay looks for late commits",
    file: relay("reading/late-commits"),
    changes: [["await this.#inspect({ from: after, base: writers, width: firstWidth }, this.#room, signal)", "0"]],
  },
  {
    guard: "a search for late commits goes back if a transaction that just ended may have left earlier rows",
    file: relay("reading/late-commits"),
    changes: [["Math.min(from, this.#lowestLeft(inspection.base, found.writers))", "from"]],
  },
  {
    guard: "a waiting row is not sent before an earlier row of its key that has just failed",
    file: relay("ordering/window"),
    changes: [["row.waiting && queue?.isOvertaking(row, read)", "false"]],
  },
  {
    guard: "rows behind a failed row of their key are not sent",
    file: relay("ordering/window"),
    changes: [["const other of queue.rows.splice(0)", "const other of []"]],
  },
  {
    guard: "rows read while the lease had expired are sent once the lease is renewed",
    file: relay("owning/ownership"),
    changes: [["this.#options.resumed();", "{}"]],
  },
  {
    guard: "with a total order, the relay waits at a gap in the positions",
    file: relay("reading/gap"),
    changes: [["position > passed + 1 && position > this.#closed", "false"]],
  },
  {
    guard: "a retried message that held its key is sent before the messages that waited for it",
    file: "node_modules/postbox/dist/stores/rows/box-lane.js",
    changes: [
      [
        "if (key === undefined || hold === undefined)\n            return false;\n        hold.rows.set",
        "return false;\n        hold.rows.set",
      ],
    ],
  },
  {
    guard: "discarding the message that holds a key releases the key",
    file: "node_modules/postbox/dist/stores/rows/box-rows.js",
    changes: [["if (key !== undefined && !this.#isHeldByParked(key))", "if (false)"]],
  },
  {
    guard: "releasing a key makes its hold due, and does not delete it",
    file: "node_modules/postbox/dist/stores/rows/box-lane.js",
    changes: [
      ["if (hold !== undefined)\n            hold.dueAt = Math.min(hold.dueAt, now);", "this.#holds.delete(key);"],
    ],
  },
  {
    guard: "suspects are counted, sent alone and parked",
    file: relay("isolation/suspicion"),
    changes: [["if (row.crashes < hopelessFrom)", "if (true)"]],
  },
  {
    guard: "a loop that is woken or stopped cancels its timer",
    file: "node_modules/postbox/dist/internal/wake.js",
    changes: [["cancel();", ""]],
  },
  {
    guard: "a message is acked after its handler's transaction has committed",
    file: "node_modules/postbox/dist/router/session.js",
    changes: [
      ["const startedAt =", "void acking.succeeded().catch(() => {});\n        const startedAt ="],
      [
        "return acking.succeeded(handled).catch((error) => this.#failures.settle(delivery, error));",
        "return Promise.resolve();",
      ],
    ],
  },
  {
    guard: "the inbox stores a message's id in the handler's transaction",
    file: "node_modules/postbox/dist/stores/memory/memory-inbox.js",
    changes: [
      [
        "tx.onCommit(() => boxOf(arrival).remembered.add(arrival, rows.now()));",
        "boxOf(arrival).remembered.add(arrival, rows.now());",
      ],
    ],
  },
  {
    guard: "the inbox recognizes messages that were handled",
    file: "node_modules/postbox/dist/stores/rows/remembered-ids.js",
    changes: [["return sameOrNot(known.hash, hash);", 'return "new";']],
  },
  {
    guard: "the inbox remembers an id for the whole retention",
    file: "node_modules/postbox/dist/stores/rows/remembered-ids.js",
    changes: [["filter(([, { since }]) => since < before)", "filter(() => true)"]],
  },
  {
    guard: "a message older than the inbox's retention is not handled",
    file: "node_modules/postbox/dist/stores/rows/remembered-ids.js",
    changes: [['"too-old" : "new"', '"new" : "new"']],
  },
  {
    guard: "a message from the box is removed in its handler's transaction",
    file: "node_modules/postbox/dist/inbox/finish.js",
    changes: [
      ["await inbox.handled(tx, arrival, claim.row, claim.epoch)", "true"],
      ["claim.handled = true;", ""],
    ],
  },
  {
    guard: "a handler does not commit if its process has lost the lane",
    file: "node_modules/postbox/dist/stores/memory/memory-inbox.js",
    changes: [
      ["if (!from.has(row, epoch))\n                return false;", ""],
      ["tx.beforeCommit(", "void ("],
    ],
  },
  {
    guard: "a failed message is stored in the inbox before it is acked",
    file: "node_modules/postbox/dist/inbox/keeper.js",
    changes: [["await bounded.setAside(arrival, aside, remember);", '"new";']],
  },
];
