import type { Part } from "../part.js";
import { duplicates } from "./duplicates.js";
import { durable } from "./durable.js";
import { full } from "./full.js";
import { handling } from "./handling.js";
import { remembered } from "./remembered.js";

/** The inbox on PostgreSQL: `npm run bench -- inbox`. docs/performance.md explains each name. */
export const inbox: Part = {
  name: "inbox",
  bars: {
    "inbox.vs-hand": { atLeast: 0.9 },
    "inbox.vs-without": { atLeast: 0.6 },
    "inbox.duplicates": { atLeast: 1.5 },
    "inbox.full.vs-hand": { atLeast: 0.85 },
    "inbox.durable": { atLeast: 0.5 },
    "inbox.remembered": { atLeast: 0.85 },
  },
  // The benchmark that needs five million rows comes last.
  benchmarks: [handling, duplicates, full, durable, remembered],
};
