// A relay in a process of its own, told by messages when to stop. Its sender counts, and takes the time it is told to.
import pg from "pg";
import { createRelay, type RelayOptions } from "postbox";
import { postgresStore } from "postbox/postgres";
import { countingSender } from "./counting-sender.js";

export interface RelayOrder {
  readonly url: string;
  readonly schema: string;
  readonly callMs: number;
  readonly options: RelayOptions;
}

export type RelayReport =
  | { readonly sent: number }
  /** The last one: everything is settled. The greatest resident memory that was seen. */
  | { readonly stopped: true; readonly peakMegabytes: number };

const { url, schema, callMs, options } = JSON.parse(process.argv[2] as string) as RelayOrder;
const report = (text: RelayReport) => process.send?.(text);

const pool = new pg.Pool({ connectionString: url, max: 6 });
const onSent = () => report({ sent: sender.sent });
const sender = countingSender({ expected: Number.POSITIVE_INFINITY, callMs, onSent });
const relay = createRelay(postgresStore({ pool, schema }), sender, options);

// Sampled: what the system calls the peak of a process begins with that of its parent.
let peakMegabytes = 0;
const sampling = setInterval(() => {
  peakMegabytes = Math.max(peakMegabytes, process.memoryUsage.rss() / 2 ** 20);
}, 20);
relay.start();

// Ctrl-C reaches the whole group: the parent decides.
process.on("SIGINT", () => {});
process.on("disconnect", () => process.exit());
// The parent may have ended while this was still loading.
if (!process.connected) process.exit();
process.once("message", async () => {
  await relay.stop();
  await pool.end();
  clearInterval(sampling);
  report({ stopped: true, peakMegabytes });
  process.disconnect();
});
