import pg from "pg";
import type { TelemetryEvent } from "postbox";
import { type PostgresStore, postgresStore } from "postbox/postgres";
import { type Diary, openDiary } from "./diary.js";

/** Short, so that nobody waits long for those that die. */
export const leaseMs = 4_000;

export type Role = "producer" | "relay" | "consumer";

/** `billing` has an `inbox`, `ledger` a `durableInbox`. */
export type Consumer = "billing" | "ledger";
export const consumers: readonly Consumer[] = ["billing", "ledger"];

/** What a process is told when it starts. */
export interface Part {
  /** That of its connections to the database, too. */
  readonly name: string;
  /** Begins the name of everything that is shared: each run has its own. */
  readonly run: string;
  readonly database: string;
  readonly broker: string;
  readonly diary: string;
  readonly seed: number;
  /** Producers: how many messages to commit. */
  readonly quota?: number;
  /** Consumers: which one, and the queue, or the group, that this process works for. */
  readonly consumer?: Consumer;
  readonly queue?: string;
}

/** Where the producers' tables are, and where those of the consumers. */
export const producersSchema = (run: string): string => `${run}_out`;
export const consumersSchema = (run: string): string => `${run}_in`;

/**
 * What a process is told while it runs: to stop in good order, or which signal to give itself in the middle of its
 * work. From `until` on that is given from outside: whoever hears of it later, still at its beginning, has had it.
 */
export type Cue = "stop" | { readonly signal: "SIGKILL" | "SIGSTOP"; readonly until: number };

/** Tells that something is on its way: a signal that waits for that comes within milliseconds. */
export type Busy = () => void;

/** Plays the part that this process was started for. `start` resolves with how to stop. */
export async function play(
  start: (part: Part, diary: Diary, busy: Busy) => Promise<() => Promise<void>>,
): Promise<void> {
  // Ctrl-C reaches the whole group: the parent decides.
  process.on("SIGINT", () => {});
  process.on("disconnect", () => process.exit(1));
  const part = JSON.parse(process.argv[2] as string) as Part;
  let waiting: Exclude<Cue, "stop"> | undefined;
  const busy = () => {
    if (waiting === undefined) return;
    const { signal, until } = waiting;
    waiting = undefined;
    setTimeout(() => Date.now() < until && process.kill(process.pid, signal), Math.random() ** 2 * 40);
  };
  const stop = await start(part, openDiary(part.diary), busy);
  process.on("message", async (cue: Cue) => {
    if (cue !== "stop") waiting = cue;
    else {
      await stop();
      process.exit(0);
    }
  });
}

/** The pool and the store of a process. */
export function openStore({ name, database }: Part, schema: string, max: number) {
  const pool = new pg.Pool({ connectionString: database, application_name: name, max });
  // A connection that dies while nobody uses it is nobody's failure.
  pool.on("error", () => {});
  const store: PostgresStore<pg.ClientBase> = postgresStore({ pool, schema });
  return { pool, store };
}

const troubles: readonly TelemetryEvent["name"][] = ["relay.lost", "relay.failed", "breaker.opened", "router.failed"];

/**
 * What goes wrong without anybody having made it so, such as a lease that a slow machine has lost, is a fault all the
 * same.
 */
export function writeTroubles(diary: Diary) {
  return (event: TelemetryEvent): void => {
    if (!troubles.includes(event.name)) return;
    const why = "error" in event ? `: ${event.error.message}` : "";
    diary.write({ what: "fault", kind: `${event.name}${why}` });
  };
}
