import type { Message } from "./message/message.js";

/*
 * The operator's seam: inspect a box, and change what is stuck in it. Reads change nothing. Every change names its
 * operator and writes a row to the audit in the same transaction.
 */

/** Where a message is. `waiting`: it failed, or waits behind a failed message of its key. */
export type Status = "pending" | "waiting" | "scheduled" | "parked" | "done";

/** Selects the messages that match every given field. Without fields, all messages. */
export interface MessageFilter {
  /** At most 1,000. */
  readonly ids?: readonly string[];
  readonly type?: string;
  readonly topic?: string;
  readonly key?: string;
  readonly source?: string;
  readonly correlationId?: string;
  /** Appended at or after this moment. */
  readonly createdFrom?: Date;
  /** Appended before this moment. */
  readonly createdBefore?: Date;
  /** At least this many failed attempts. */
  readonly minAttempts?: number;
  /** Its last error contains this text, case-sensitive. */
  readonly error?: string;
}

/** The box that a call is about. */
export interface BoxOption {
  /** Defaults to "outbox". */
  readonly box?: string;
}

export interface ListOptions extends MessageFilter, BoxOption {
  /**
   * One or several; they are listed one after another. Defaults to all, in the order of the type's definition; for an
   * inbox, to all but `done`.
   */
  readonly status?: Status | readonly Status[];
  /** At most 1,000. Defaults to 50. */
  readonly limit?: number;
  /** The `next` of the previous page. Defaults to the first page. */
  readonly after?: string | undefined;
}

/** One failed attempt. */
export interface Failure {
  readonly attempt: number;
  readonly at: Date;
  readonly error: string;
}

/** A message and its state, without its data. */
export interface StoredMessage {
  readonly status: Status;
  /** Its position in the order of the box. Scheduled messages have positions of their own. */
  readonly position: number;
  readonly lane: number;
  readonly id: string;
  readonly type: string;
  readonly topic: string;
  readonly source: string;
  readonly key?: string;
  /** The size of its data. */
  readonly bytes: number;
  /** Failed attempts; for a message that is done, all attempts. */
  readonly attempts: number;
  readonly lastError?: string;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** When a waiting or scheduled message continues. Absent while its key is held until an operator releases it. */
  readonly dueAt?: Date;
  /** The schedule key of a scheduled message, if it has one. */
  readonly scheduleKey?: string;
  readonly publishedAt?: Date;
}

/** Everything that is stored about a message. */
export interface StoredMessageDetails extends StoredMessage {
  readonly message: Message;
  /**
   * Why the stored row is no valid message, such as "headers is not an object of strings"; `message` has what could be
   * read. It is never sent, and can be discarded. Absent for a valid message.
   */
  readonly unreadable?: string;
  /** The last 20 failed attempts, oldest first. */
  readonly failures: readonly Failure[];
}

/** A page of `admin.list`. */
export interface MessagePage {
  /** One status after another, each the newest first. */
  readonly messages: readonly StoredMessage[];
  /** Pass it as `after` for the next page; absent on the last page. */
  readonly next?: string;
}

/** The number of messages of one status, and the oldest of them. */
export interface StatusStats {
  readonly count: number;
  /** The age of the oldest message; of scheduled ones, how long the first is overdue. Absent if there is none. */
  readonly oldestAgeMs?: number;
}

/** Options of `admin.stats`. */
export interface StatsOptions extends BoxOption {
  /** Also counts messages that are done, which takes longer the more there are. Defaults to false. */
  readonly done?: boolean;
}

/** The figures of a box at one moment. */
export interface BoxStats {
  readonly pending: StatusStats;
  readonly waiting: StatusStats;
  readonly scheduled: StatusStats;
  readonly parked: StatusStats;
  /** Only if asked for. */
  readonly done?: StatusStats;
  /**
   * The same figures per topic, in order of the topic's name, without `done`; and the age of the topic's oldest message
   * that is due.
   */
  readonly topics: readonly (Readonly<Record<Exclude<Status, "done">, number>> & {
    readonly topic: string;
    readonly oldestAgeMs?: number;
  })[];
  /** How many keys are held, and how many of them until an operator releases them. */
  readonly heldKeys: { readonly count: number; readonly forGood: number };
  readonly paused: boolean;
  readonly lanes: {
    /** Lanes that no running relay owns. */
    readonly unowned: number;
    /**
     * In order of their names. A relay that stands by has no lanes; one with `lives: false` has crashed, and loses its
     * lanes.
     */
    readonly owners: readonly { readonly owner: string; readonly lanes: number; readonly lives: boolean }[];
  };
}

/** The operator of a change. */
export interface Operator {
  /** The operator's name, for the audit. */
  readonly by: string;
  /** The reason, for the audit. Defaults to none. */
  readonly reason?: string;
}

/**
 * Which messages to change: by id, or by any other field. Without ids, the change needs the `confirm` of a dry run, and
 * affects only what that has counted.
 */
export interface Selection extends MessageFilter, BoxOption {}

export interface ChangeOptions extends Operator {
  /** The token of a dry run of the same change with the same selection. Required unless `ids` are given. */
  readonly confirm?: string;
  /** Ends it between two batches; what was changed stays so. */
  readonly signal?: AbortSignal;
  /** Called after each batch, with the number of messages that were changed so far. */
  readonly onBatch?: (changed: number) => void;
}

/** Options of a dry run. */
export interface DryRunOptions {
  /** Changes at most this many messages, the first ones. At most 1,000,000. Defaults to 10,000. */
  readonly limit?: number;
}

/** What a call would change. */
export interface DryRun {
  /** How many messages the change would affect. */
  readonly count: number;
  /** Whether there are more than `limit`. */
  readonly more: boolean;
  /** Confirms exactly these messages, and none that are added later. */
  readonly confirm: string;
}

/** What a call changed. */
export interface Changed {
  readonly count: number;
}

export interface RetrySelection extends Selection {
  /**
   * Which messages to retry. `parked` ones are sent again; `waiting` ones are sent now instead of later; with
   * `pending`, a relay that has had them in flight for too long loses them. Defaults to "parked".
   */
  readonly status?: "parked" | "waiting" | "pending";
}

export interface DiscardSelection extends Selection {
  /** Which messages to discard, except those that are done. Defaults to "parked". */
  readonly status?: Exclude<Status, "done">;
}

export interface ReplayOptions extends ChangeOptions {
  /** How many messages per second to send again. Defaults to 1,000. */
  readonly perSecond?: number;
}

/** Options of `admin.audit`. */
export interface AuditOptions {
  /** Defaults to all boxes. */
  readonly box?: string;
  /** At most 1,000. Defaults to 50. */
  readonly limit?: number;
  /** Older than the entry with this number. Defaults to the newest. */
  readonly before?: number;
}

/** An action of an operator, or of a relay that dropped a message. */
export interface AuditEntry {
  readonly number: number;
  readonly at: Date;
  readonly box: string;
  readonly action: "retry" | "discard" | "replay" | "pause" | "resume" | "release" | "drop";
  readonly by: string;
  readonly reason?: string;
  /** The selection of messages, or the key. */
  readonly selection?: Readonly<Record<string, unknown>>;
  readonly count: number;
  /** The messages that were changed. */
  readonly ids: readonly string[];
}

/**
 * What an operator can do with the boxes of a store. Bad input throws `option-invalid` and changes nothing. Large
 * changes are made in batches, each in a transaction of its own with its entry in the audit: a crash in between keeps
 * the batches that were made.
 */
export interface Admin {
  /** The names of all boxes: the outbox, and one for each consumer that has ever run with an inbox. */
  boxes(): Promise<readonly string[]>;
  stats(options?: StatsOptions): Promise<BoxStats>;
  list(options?: ListOptions): Promise<MessagePage>;
  /** All messages with this id. A replayed message is in more than one place. */
  get(id: string, options?: BoxOption): Promise<readonly StoredMessageDetails[]>;
  /** The changes, newest first. */
  audit(options?: AuditOptions): Promise<readonly AuditEntry[]>;

  /**
   * Sends parked messages again, with their attempts reset. If the key of one is held, it returns to its place before
   * the later ones that wait, and if it held the key itself, the key continues; otherwise it is appended anew. Waiting
   * and stuck messages stay in their place: see `RetrySelection`. Unreadable messages stay parked, and are not counted.
   */
  retry(selection: RetrySelection, options: ChangeOptions): Promise<Changed>;
  /**
   * Removes messages for good. A relay may still send what it has in flight. A key that waited for a removed message
   * continues now.
   */
  discard(selection: DiscardSelection, options: ChangeOptions): Promise<Changed>;
  /**
   * Sends messages that are done again, each once, in their order, with the same ids: a consumer with an inbox skips
   * those that it has handled. An inbox does not store what it has handled, so replay from the outbox. Calling it again
   * with the same `confirm` continues where it ended, and sends nothing twice.
   */
  replay(selection: Selection, options: ReplayOptions): Promise<Changed>;
  /** Says what a change would do, without doing it. */
  dryRun(action: "replay", selection: Selection, options?: DryRunOptions): Promise<DryRun>;
  dryRun(action: "retry", selection: RetrySelection, options?: DryRunOptions): Promise<DryRun>;
  dryRun(action: "discard", selection: DiscardSelection, options?: DryRunOptions): Promise<DryRun>;

  /** Lets relays finish what is in flight, and send nothing more, within a third of their lease. Appending goes on. */
  pause(options: Operator & BoxOption): Promise<void>;
  resume(options: Operator & BoxOption): Promise<void>;
  /** Lets a held key continue now, whatever it waits for. False if it is not held. */
  release(key: string, options: Operator & BoxOption): Promise<boolean>;
}

/** The options of every store's `purge`; some stores have more. */
export interface PurgeOptions extends BoxOption {
  /** How long to keep at least. */
  readonly retentionMs: number;
  /**
   * Receives everything before it is removed, in batches, each in order of position. If it rejects, its batch stays.
   * After a crash or a stop, it may receive a batch again. The signal is aborted when it should end. Defaults to none.
   */
  readonly archive?: (messages: readonly ArchivedMessage[], signal: AbortSignal) => Promise<void>;
  readonly signal?: AbortSignal;
}

/** A sent message, as `archive` receives it before it is deleted. */
export interface ArchivedMessage {
  readonly message: Message;
  readonly position: number;
  readonly attempts: number;
  readonly createdAt: Date;
  readonly publishedAt: Date;
}

/** What `purge` deleted. */
export interface Purged {
  /** Another process is purging: nothing was done. */
  readonly busy: boolean;
  readonly removed: number;
}
