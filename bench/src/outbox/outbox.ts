import type { Part } from "../part.js";
import { append } from "./append.js";
import { appendMany } from "./append-many.js";
import { backlog } from "./backlog.js";
import { cleanup } from "./cleanup.js";
import { drain } from "./drain.js";
import { find } from "./find.js";
import { heldXmin } from "./held-xmin.js";
import { hint } from "./hint.js";
import { hintLatency } from "./hint-latency.js";
import { keep } from "./keep.js";
import { memory } from "./memory.js";
import { memoryLarge } from "./memory-large.js";
import { pollLatency } from "./poll-latency.js";
import { restartHeldXmin } from "./restart-held-xmin.js";
import { scaleOut } from "./scale-out.js";
import { vacuumed } from "./vacuumed.js";

/** The outbox on PostgreSQL: `npm run bench -- outbox`. docs/performance.md explains each name. */
export const outbox: Part = {
  name: "outbox",
  bars: {
    "outbox.drain.vs-bare": { atLeast: 0.7 },
    "outbox.drain.vs-peers": { atLeast: 2 },
    "outbox.keep.vs-delete": { atLeast: 0.55 },
    "outbox.held-xmin": { atLeast: 0.9 },
    "outbox.backlog": { atLeast: 0.9 },
    "outbox.scale-out": { atLeast: 1.6 },
    "outbox.latency.p50.vs-peer": { atMost: 1.5 },
    "outbox.latency.p99.vs-peer": { atMost: 3 },
    "outbox.latency.poll.p50": { atMost: 12 },
    "outbox.latency.poll.p99": { atMost: 25 },
    "outbox.append.vs-hand": { atLeast: 0.92 },
    "outbox.hint.vs-off": { atLeast: 0.9 },
    "outbox.append-many.vs-bare": { atLeast: 0.7 },
    "outbox.memory": { atMost: 200 },
    "outbox.memory.large": { atMost: 400 },
    "outbox.drain.vacuumed": { atLeast: 0.9 },
    "outbox.restart.held-xmin": { atMost: 2 },
    "outbox.find": { atMost: 20 },
    "outbox.cleanup": { atLeast: 0.8 },
    "outbox.cleanup.overflow": { atLeast: 0.8 },
  },
  // The idle benchmarks precede the long ones. The million rows stay until the memory has been measured.
  benchmarks: [
    drain,
    keep,
    cleanup,
    scaleOut,
    pollLatency,
    hintLatency,
    append,
    hint,
    appendMany,
    vacuumed,
    heldXmin,
    restartHeldXmin,
    memoryLarge,
    backlog,
    memory,
    find,
  ],
};
