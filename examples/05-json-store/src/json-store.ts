import { checkOptions, type Runtime, runtimeWith, type Store, surroundingTransactions } from "postbox/store";
import { isUnavailable, openDatabase } from "./database.js";
import type { JsonTransaction } from "./json-transaction.js";

export interface JsonStoreOptions {
  /**
   * Path of the file that stores everything. The first commit creates it and its folder. No other process may use it.
   */
  readonly file: string;
  /** The clock of the file. Defaults to the system clock. */
  readonly runtime?: Partial<Runtime>;
}

/**
 * A store in one JSON file. Transactions run one at a time, and each commit writes the whole file. It is meant for
 * demonstrations and small tools, not for production.
 */
export function jsonStore(options: JsonStoreOptions): Store<JsonTransaction> {
  const isPath = { expected: "a path", test: (value: unknown) => typeof value === "string" && value !== "" };
  const isRuntime = { expected: "an object", test: (value: unknown) => typeof value === "object" && value !== null };
  checkOptions("jsonStore", options, { file: isPath, runtime: isRuntime }, ["file"]);
  const database = openDatabase(options.file, runtimeWith(options.runtime));
  return {
    name: "json",
    ...surroundingTransactions(
      "json",
      { begin: (work, { signal } = {}) => database.transact(work, signal) },
      undefined,
    ),
    ...database.verbs,
    // Transactions run one at a time and never conflict, and a file needs no authentication.
    isConflict: () => false,
    isUnavailable,
    isRefused: () => false,

    append: async (tx, box, messages) => database.rowsOf(tx).append(box, messages),
    cancel: async (tx, box, type, scheduleKey) => database.rowsOf(tx).cancel(box, type, scheduleKey),
    tick: async (tx, schedule, claim) => database.rowsOf(tx).tick(schedule, claim),

    // Transactions run one at a time, so no concurrent one can remember the same message.
    inbox: {
      remember: async (tx, arrival, remembering) => database.rowsOf(tx).remember(arrival, remembering),
      keep: (arrivals, remembering, signal) => database.change((rows) => rows.keep(arrivals, remembering), signal),
      setAside: (arrival, aside, remembering, signal) =>
        database.change((rows) => rows.setAside(arrival, aside, remembering), signal),
      handled: async (tx, arrival, row, epoch) => database.rowsOf(tx).handled(arrival, row, epoch),
    },

    // A file has no schema.
    migrate: async () => {},
  };
}
