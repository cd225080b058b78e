import { randomUUID } from "node:crypto";
import type { Message } from "postbox";
import type { Health, HealthOptions } from "postbox/admin";
import {
  boxProblems,
  checkHealth,
  checkOptions,
  createAdmin,
  healthOf,
  PostboxError,
  type ScheduleState,
  type Store,
  surroundingTransactions,
  type TickClaim,
  type TransactionOpener,
} from "postbox/store";
import { boxIn, type JsonDatabase, openDatabase } from "./database.js";
import { jsonAdmin, usedBox } from "./json-admin.js";
import { jsonBox } from "./json-box.js";
import { jsonInbox } from "./json-inbox.js";
import type { JsonTransaction } from "./json-transaction.js";
import { sightOf } from "./looking.js";
import { purge } from "./purge.js";
import { append, jsonOf, rowsOf } from "./rows.js";
import type { BoxState, State } from "./state.js";

export interface JsonStoreOptions {
  /** Where everything is stored. The first commit creates the file and its folder. No other process may use it. */
  readonly file: string;
}

/**
 * A store on one JSON file. Transactions take turns, and each commit writes the whole file: for demonstrations and small tools, not for
 * production.
 */
export function jsonStore(options: JsonStoreOptions): Store<JsonTransaction> {
  const isPath = { expected: "a path", test: (value: unknown) => typeof value === "string" && value !== "" };
  checkOptions("jsonStore", options, { file: isPath }, ["file"]);
  const database = openDatabase(options.file);
  return {
    name: "json",
    ...surroundingTransactions("json", opener(database), undefined),
    // Transactions take turns and never conflict, and a file asks for no password.
    isConflict: () => false,
    isUnavailable,
    isRefused: () => false,

    async append(tx, name, messages) {
      const box = boxIn(database.draftOf(tx), name);
      const now = Date.now();
      for (const message of messages) schedule(box, message, now);
    },

    cancel: async (tx, name, type, scheduleKey) => unschedule(boxIn(database.draftOf(tx), name), type, scheduleKey),
    tick: async (tx, name, claim) => tick(database.draftOf(tx), name, claim),
    inbox: jsonInbox(database),
    box: (name) => jsonBox(database, name),
    admin: createAdmin(jsonAdmin(database)),
    purge: (purgeOptions) => purge(database, purgeOptions),
    health: (healthOptions) => health(database, healthOptions),
    // A file has no schema.
    migrate: async () => {},
  };
}

/** How the shared part of all stores begins a transaction here. */
function opener(database: JsonDatabase): TransactionOpener<JsonTransaction> {
  return { begin: (work, { signal } = {}) => database.transact((_, tx) => work(tx), signal) };
}

/** A message with a schedule key replaces the one of its type and key that is still scheduled. */
function schedule(box: BoxState, message: Message, now: number): void {
  const { type, scheduleKey, deliverAt } = message;
  const dueAt = deliverAt === undefined ? now : Date.parse(deliverAt);
  if (scheduleKey !== undefined) {
    unschedule(box, type, scheduleKey);
    append(box, jsonOf(message), now, { dueAt, scheduleKey });
  } else {
    append(box, jsonOf(message), now, dueAt > now ? { dueAt } : {});
  }
}

function unschedule(box: BoxState, type: string, scheduleKey: string): boolean {
  const row = rowsOf(box, "scheduled").find((one) => one.message.type === type && one.scheduleKey === scheduleKey);
  return row !== undefined && box.rows.delete(row.position);
}

function tick({ schedules }: State, name: string, claim: TickClaim | undefined): ScheduleState {
  const now = Date.now();
  const known = schedules.get(name) ?? { id: randomUUID(), lastTick: now };
  const claimed =
    claim !== undefined && claim.after === known.lastTick && claim.tick > claim.after && claim.tick <= now;
  const moved = claimed ? { ...known, lastTick: claim.tick } : known;
  schedules.set(name, moved);
  return { ...moved, now, claimed };
}

async function health(database: JsonDatabase, options: HealthOptions | undefined): Promise<Health> {
  const limits = checkHealth(options);
  try {
    const state = await database.committed();
    const names = limits.box === undefined ? [...state.boxes.keys()] : [limits.box];
    const now = Date.now();
    return healthOf(names.flatMap((name) => boxProblems(name, sightOf(usedBox(state, name), now), limits)));
  } catch (error) {
    if (!isUnavailable(error)) throw error;
    return healthOf([{ code: "unreachable", severity: "error", timedOut: false, text: (error as Error).message }]);
  }
}

function isUnavailable(error: unknown): boolean {
  return error instanceof PostboxError && error.code === "store-unavailable";
}
