// A relay in a child process; a message from the parent stops it. Its sender only counts, and each call takes `callMs`.
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
  /** The last report: everything is settled. `peakMegabytes` is the greatest sampled resident memory. */
  | { readonly stopped: true; readonly peakMegabytes: number };

const { url, schema, callMs, options } = JSON.parse(process.argv[2] as string) as RelayOrder;
const report = (text: RelayReport) => process.send?.(text);

const pool = new pg.Pool({ connectionString: url, max: 6 });
const onSent = () => report({ sent: sender.sent });
const sender = countingSender({ expected: Number.POSITIVE_INFINITY, callMs, onSent });
const relay = createRelay(postgresStore({ pool, schema }), sender, options);

// Sampled, because the operating system's peak of a child process starts with that of its parent.
let peakMegabytes = 0;
const sampling = setInterval(() => {
  peakMegabytes = Math.max(peakMegabytes, process.memoryUsage.rss() / 2 ** 20);
}, 20);
relay.start();

// Ctrl-C reaches the whole process group, and the parent decides when this process ends.
process.on("SIGINT", () => {});
process.on("disconnect", () => process.exit());
// The parent may have ended while this program was loading.
if (!process.connected) process.exit();
process.once("message", async () => {
  await relay.stop();
  await pool.end();
  clearInterval(sampling);
  report({ stopped: true, peakMegabytes });
  process.disconnect();
});
