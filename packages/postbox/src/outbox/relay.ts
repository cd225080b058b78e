import { type Backoff, exponential, reliable } from "../backoff.js";
import { ConfigError, PostboxError } from "../errors.js";
import { type Runtime, runtimeWith, sleep } from "../internal/runtime.js";
import { startStop } from "../internal/start-stop.js";
import { uuidv7Generator } from "../internal/uuidv7.js";
import { callback, checkOptions, count, object, oneOf, positive } from "../options.js";
import type { Store } from "../store.js";
import { quiet, type Telemetry } from "../telemetry/events.js";
import type { Sender } from "../transport.js";
import { boundedBox } from "./bounded-box.js";
import { runEngine } from "./engine.js";
import { acquireLease, type Lease } from "./lease.js";
import { outboxBox } from "./outbox.js";

export interface RelayOptions {
  /** The longest pause between two looks at the box; shorter while there is work. Defaults to 500. */
  readonly pollIntervalMs?: number;
  /** How many messages at most go to the sender in one call. Defaults to 500. */
  readonly batchSize?: number;
  /**
   * How many messages at most are on their way. Up to twice as many more may be sent and not settled yet; after a crash
   * all of these are sent again. Defaults to 1,000.
   */
  readonly maxInFlight?: number;
  /** How many bytes at most are on their way; one larger message still goes alone. Defaults to 16 MiB. */
  readonly maxInFlightBytes?: number;
  /** What becomes of a message that was sent: `delete`, or `keep` it in `outbox_done`. Defaults to `delete`. */
  readonly mode?: "delete" | "keep";
  /** Total tries of a message before it is parked. Outages of the broker spend none. Defaults to 10. */
  readonly maxAttempts?: number;
  /** The delay between tries of a message, and between looks during an outage. Defaults to `exponential()`. */
  readonly backoff?: Backoff;
  /** Which failures can never succeed, beside those the sender rejects: parked at once. Defaults to none. */
  readonly isPermanent?: (error: Error) => boolean;
  /** How long the box stays this relay's without a renewal; after a crash another takes over then. Defaults to 15,000. */
  readonly leaseMs?: number;
  /** How long a batch may take to be confirmed; below a third of `leaseMs`. Defaults to 4,000. */
  readonly publishTimeoutMs?: number;
  /** Listens to what happens here. Defaults to nobody. */
  readonly telemetry?: Telemetry;
  /** @experimental Time, chance and failpoints. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

const rules = {
  pollIntervalMs: positive,
  batchSize: count,
  maxInFlight: count,
  maxInFlightBytes: count,
  mode: oneOf("delete", "keep"),
  maxAttempts: count,
  backoff: callback,
  isPermanent: callback,
  leaseMs: positive,
  publishTimeoutMs: positive,
  telemetry: callback,
  runtime: object,
};

/** The pump from an outbox to a sender. */
export interface Relay {
  /**
   * Sends what is committed until the signal is aborted; then finishes the batch on its way and gives its lease back.
   * Rejects only for what no retry can mend (a missing or newer schema); all else is told to telemetry and tried again.
   */
  run(signal?: AbortSignal): Promise<void>;
  /**
   * `run` in the background. Throws `already-started` while it runs. A run that fails tells telemetry, and `stop` rejects
   * with its error; then it may be started again.
   */
  start(): void;
  /** Stops what `start` began and waits for it. */
  stop(): Promise<void>;
}

/** Retrying does not mend these: somebody has to migrate, or to deploy. */
const fatal: ReadonlySet<string> = new Set(["schema-missing", "schema-outdated", "schema-newer"]);

/**
 * Makes a relay. Any number may run against one box: one of them works, the others stand by and take over within
 * `leaseMs` after it died. At least once: what was sent but not yet settled when it died is sent again, same id.
 */
export function createRelay<Tx>(store: Store<Tx>, sender: Sender, options: RelayOptions = {}): Relay {
  checkOptions("createRelay", options, rules);
  if (typeof store?.box !== "function" || typeof sender?.send !== "function") {
    throw new ConfigError(
      "option-invalid",
      "createRelay(store, sender): give a store, and a sender such as broker.sender()",
    );
  }
  const { pollIntervalMs = 500, batchSize = 500, leaseMs = 15_000, publishTimeoutMs = 4_000 } = options;
  const runtime = runtimeWith(options.runtime);
  checkBelowThird("pollIntervalMs", pollIntervalMs, leaseMs);
  checkBelowThird("publishTimeoutMs", publishTimeoutMs, leaseMs);
  const telemetry = quiet(options.telemetry);
  const failed = (thrown: unknown, retryInMs: number) =>
    telemetry({ name: "relay.failed", box: outboxBox, error: PostboxError.from(thrown), retryInMs });
  const backoff = reliable(options.backoff ?? exponential(), (error) => failed(error, 0));
  const box = boundedBox(store.box(outboxBox), leaseMs, runtime);
  const nextOwner = uuidv7Generator(runtime);
  const isFatal = (error: unknown) => fatal.has(PostboxError.from(error).code);
  const engineOptions = {
    box,
    boxName: outboxBox,
    sender,
    batchSize,
    maxInFlight: options.maxInFlight ?? 1000,
    maxInFlightBytes: options.maxInFlightBytes ?? 16 * 1024 * 1024,
    maxAttempts: options.maxAttempts ?? 10,
    pollIntervalMs,
    publishTimeoutMs,
    keep: options.mode === "keep",
    backoff,
    isPermanent: (error: Error) => {
      try {
        return options.isPermanent?.(error) ?? false;
      } catch (thrown) {
        failed(thrown, 0);
        return false;
      }
    },
    runtime,
    telemetry,
    failed,
    isFatal,
  };

  async function run(signal: AbortSignal): Promise<void> {
    // Of this run: two at once are two relays, of which one works.
    const owner = nextOwner();
    let failures = 0;
    while (!signal.aborted) {
      let pauseMs = pollIntervalMs;
      try {
        const lease = await acquireLease(box, owner, leaseMs, runtime);
        failures = 0;
        if (lease !== undefined) await work(lease, owner, signal);
      } catch (error) {
        if (isFatal(error)) {
          failed(error, Number.POSITIVE_INFINITY);
          throw error;
        }
        pauseMs = backoff(++failures, runtime.random);
        failed(error, pauseMs);
      }
      await sleep(runtime, pauseMs, signal);
    }
  }

  async function work(lease: Lease, owner: string, signal: AbortSignal): Promise<void> {
    const lanes = lease.lanes.length;
    telemetry({ name: "relay.owned", box: outboxBox, owner, lanes });
    try {
      if (runtime.failpoint) await runtime.failpoint("relay.owned");
      await runEngine({ ...engineOptions, lease }, signal);
    } finally {
      const lost = !lease.trusted();
      await lease.end();
      telemetry(
        lost ? { name: "relay.lost", box: outboxBox, owner, lanes } : { name: "relay.released", box: outboxBox, owner },
      );
    }
    if (runtime.failpoint) await runtime.failpoint("relay.released");
  }

  const background = startStop("relay", run);
  return {
    run: (signal = new AbortController().signal) => run(signal),
    start: () => background.start(),
    stop: () => background.stop(),
  };
}

function checkBelowThird(name: string, value: number, leaseMs: number): void {
  if (value < leaseMs / 3) return;
  throw new ConfigError(
    "option-invalid",
    `createRelay: ${name} (${value}) must be below a third of leaseMs (${leaseMs}); raise leaseMs above ${value * 3}`,
    { path: name },
  );
}
