import type { Part } from "../part.js";
import { appending } from "./appending.js";
import { draining } from "./draining.js";
import { latency } from "./latency.js";
import { storage } from "./storage.js";

/** The effect of each outbox option, for docs/guides/tuning.md: `npm run bench -- tuning`. No figure has a bar. */
export const tuning: Part = { name: "tuning", bars: {}, benchmarks: [latency, draining, appending, storage] };
