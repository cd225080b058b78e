import { Option } from "commander";
import type { RelayOptions, Telemetry } from "postbox";
import type { Call, CommandDefinition } from "../call.js";
import { readDuration } from "../duration.js";
import { type ExitCode, exitCodes } from "../exit-codes.js";
import { CliError } from "../failure.js";
import { healthServer } from "../health-server.js";
import { logLines } from "../log-lines.js";
import { readWhole } from "../selection.js";

interface Flags
  extends Pick<RelayOptions, "order" | "batchSize" | "maxInFlight" | "maxAttempts" | "onSent" | "onPark"> {
  readonly pollInterval?: number;
  readonly lease?: number;
  readonly publishTimeout?: number;
  readonly retention?: number;
  readonly log: "text" | "json";
  readonly verbose?: boolean;
  readonly healthPort?: number;
  readonly healthHost: string;
  readonly shutdownTimeout: number;
}

/** Runs a relay until SIGTERM or Ctrl-C. */
export const relay: CommandDefinition<Flags> = {
  name: "relay",
  summary: "Run a relay from the database to the broker",
  description:
    "Sends committed messages to the broker until SIGTERM or Ctrl-C. Then it finishes what is in flight, gives its " +
    "lanes back, and exits. Any number of relays share the work; if one crashes, the others take over after --lease.",
  connects: "database and broker",
  flags: (command) =>
    command
      .addOption(
        new Option("--order <order>", "key, total or none; the same for all relays").choices(["key", "total", "none"]),
      )
      .option("--poll-interval <duration>", "the longest pause between two polls; defaults to 500ms", readDuration)
      .option("--lease <duration>", "how long it owns its lanes after a crash; defaults to 15s", readDuration)
      .option("--publish-timeout <duration>", "how long the broker may take to confirm; defaults to 4s", readDuration)
      .option("--batch-size <number>", "the most messages in one batch; defaults to 500", readWhole)
      .option("--max-in-flight <number>", "the most messages in flight; defaults to 1,000", readWhole)
      .option("--max-attempts <number>", "attempts before a message is parked; defaults to 10", readWhole)
      .addOption(new Option("--on-sent <what>", "what becomes of sent messages").choices(["delete", "keep"]))
      .addOption(new Option("--on-park <what>", "what a parked message does to its key").choices(["continue", "hold"]))
      .option("--retention <duration>", "how long sent messages are kept, with --on-sent keep", readDuration)
      .addOption(new Option("--log <format>", "the lines on standard error").choices(["text", "json"]).default("text"))
      .option("--verbose", "log every message")
      .option("--health-port <number>", "serve /live and /ready on this port", readWhole)
      .option("--health-host <host>", "the address of the health server", "127.0.0.1")
      .option("--shutdown-timeout <duration>", "how long a stop may take", readDuration, 30_000),
  examples: [
    "postbox relay --database postgres://localhost/shop --broker amqp://localhost",
    "postbox relay --order total --health-port 8080 --log json",
  ],
  run: runRelay,
};

async function runRelay(call: Call<Flags>): Promise<ExitCode> {
  const { flags, signal, terminal } = call;
  const { createRelay, logTo } = await import("postbox");
  const log = logTo(logLines(terminal, flags.log, flags.verbose === true));
  /** Aborted when the relay has failed for good, after it had started. */
  const failed = new AbortController();
  const telemetry: Telemetry = (event) => {
    log(event);
    if (event.name === "relay.failed" && event.retryInMs === Number.POSITIVE_INFINITY) failed.abort();
  };
  const { store } = await call.database();
  const transport = await call.broker({ telemetry });
  const options = { ...(await call.config()).relay, ...optionsOf(flags), telemetry };
  const running = createRelay(store, transport.sender(), options);
  let isReady = false;
  const { healthPort: port, healthHost: host } = flags;
  const health =
    port === undefined
      ? undefined
      : await healthServer({ port, host, store, isReady: () => isReady && !failed.signal.aborted });
  if (health !== undefined) terminal.note(`health: ${health.url}/ready`);
  try {
    const ending = AbortSignal.any([signal, failed.signal]);
    const ended = new Promise<void>((resolve) => {
      if (ending.aborted) resolve();
      ending.addEventListener("abort", () => resolve(), { once: true });
    });
    const starting = running.start();
    // If it fails before it has started, that is the command's failure.
    isReady = (await Promise.race([starting, ended])) === true;
    if (isReady) terminal.note("relay: started");
    await ended;
    isReady = false;
    if (signal.aborted) terminal.note("relay: stopping");
    await inTime(running.stop(), flags.shutdownTimeout);
    terminal.note("relay: stopped");
    return exitCodes.done;
  } finally {
    await health?.close();
  }
}

/** Rejects if the relay does not stop in time. The process then ends, and others take over the lanes. */
async function inTime(stopping: Promise<void>, timeoutMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const text = "the relay did not stop within --shutdown-timeout; what was in flight is sent again by another relay";
    timer = setTimeout(() => reject(new CliError(exitCodes.failed, text)), timeoutMs);
  });
  try {
    await Promise.race([stopping, late]);
  } finally {
    clearTimeout(timer);
  }
}

function optionsOf(flags: Flags): RelayOptions {
  const { order, batchSize, maxInFlight, maxAttempts, onSent, onPark } = flags;
  const [pollIntervalMs, leaseMs] = [flags.pollInterval, flags.lease];
  const [publishTimeoutMs, retentionMs] = [flags.publishTimeout, flags.retention];
  const given = { order, batchSize, maxInFlight, maxAttempts, onSent, onPark };
  const all = { ...given, pollIntervalMs, leaseMs, publishTimeoutMs, retentionMs };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}
