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
    guard: "the fence is locked: a settle looks at the epoch and writes in one step",
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
    guard: "a key is checked when a row goes out, not when it was read",
    file: relay("ordering/window"),
    changes: [["(row.held || tooOld)", "row.held"]],
  },
  {
    guard: "a row whose key is held goes behind those that wait",
    file: relay("ordering/window"),
    changes: [["(row.held || tooOld)", "false"]],
  },
  {
    guard: "settled positions are remembered while a read is under way",
    file: relay("reading/reads"),
    changes: [["(gone.get(lane)?.get(position) ?? 0) >= read", "false"]],
  },
  {
    guard: "late commits are looked for",
    file: relay("reading/late-commits"),
    changes: [["await this.#inspect({ from: after, base: writers, width: firstWidth }, this.#room, signal)", "0"]],
  },
  {
    guard: "a look for late commits begins again where one that ended meanwhile may have left something",
    file: relay("reading/late-commits"),
    changes: [["Math.min(from, this.#lowestLeft(inspection.base, found.writers))", "from"]],
  },
  {
    guard: "what waits is not sent before one in front of it is back",
    file: relay("ordering/window"),
    changes: [["row.waiting && queue?.isOvertaking(row, read)", "false"]],
  },
  {
    guard: "what is behind a failed one of its key is not sent",
    file: relay("ordering/window"),
    changes: [["const other of queue.rows.splice(0)", "const other of []"]],
  },
  {
    guard: "what was read while the lease had run out goes out when it stands again",
    file: relay("owning/ownership"),
    changes: [["this.#options.resumed();", "{}"]],
  },
  {
    guard: "a total order waits for a gap to be filled",
    file: relay("reading/gap"),
    changes: [["position > passed + 1 && position > this.#closed", "false"]],
  },
  {
    guard: "a retried message that held its key goes before those it held",
    file: "node_modules/postbox/dist/stores/rows/box-lane.js",
    changes: [
      [
        "if (key === undefined || hold === undefined)\n            return false;\n        hold.rows.set",
        "return false;\n        hold.rows.set",
      ],
    ],
  },
  {
    guard: "to discard what holds a key lets it go on",
    file: "node_modules/postbox/dist/stores/rows/box-rows.js",
    changes: [["if (key !== undefined && !this.#isHeldByParked(key))", "if (false)"]],
  },
  {
    guard: "what is released is not deleted, but due",
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
    guard: "who is woken, or stopped, cancels its timer",
    file: "node_modules/postbox/dist/internal/wake.js",
    changes: [["cancel();", ""]],
  },
  {
    guard: "a message is acked after the commit of what its handler did",
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
    guard: "the inbox remembers in the handler's transaction",
    file: "node_modules/postbox/dist/stores/memory/memory-inbox.js",
    changes: [
      [
        "tx.onCommit(() => boxOf(arrival).remembered.add(arrival, rows.now()));",
        "boxOf(arrival).remembered.add(arrival, rows.now());",
      ],
    ],
  },
  {
    guard: "the inbox knows what was handled",
    file: "node_modules/postbox/dist/stores/rows/remembered-ids.js",
    changes: [["return sameOrNot(known.hash, hash);", 'return "new";']],
  },
  {
    guard: "an inbox forgets nothing that it still has to remember",
    file: "node_modules/postbox/dist/stores/rows/remembered-ids.js",
    changes: [["filter(([, { since }]) => since < before)", "filter(() => true)"]],
  },
  {
    guard: "what is older than an inbox remembers is not handled",
    file: "node_modules/postbox/dist/stores/rows/remembered-ids.js",
    changes: [['"too-old" : "new"', '"new" : "new"']],
  },
  {
    guard: "what was handled from an inbox leaves it in the handler's transaction",
    file: "node_modules/postbox/dist/inbox/finish.js",
    changes: [
      ["await inbox.handled(tx, arrival, claim.row, claim.epoch)", "true"],
      ["claim.handled = true;", ""],
    ],
  },
  {
    guard: "whoever lost a lane of an inbox does not commit",
    file: "node_modules/postbox/dist/stores/memory/memory-inbox.js",
    changes: [
      ["if (!from.has(row, epoch))\n                return false;", ""],
      ["tx.beforeCommit(", "void ("],
    ],
  },
  {
    guard: "what fails is kept in the inbox before the broker forgets it",
    file: "node_modules/postbox/dist/inbox/keeper.js",
    changes: [["await bounded.setAside(arrival, aside, remember);", '"new";']],
  },
];
