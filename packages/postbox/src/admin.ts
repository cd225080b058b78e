import type { Message } from "./message/message.js";

/*
 * The operator's seam: looking at a box, and changing what is stuck in it. What only looks changes nothing. What changes
 * something says who did it and leaves a row in the audit, in the same transaction.
 */

/** Where a message is. `waiting`: it failed, or stands behind one of its key that did. */
export type Status = "pending" | "waiting" | "scheduled" | "parked" | "done";

/** Which messages: all that fit everything that is given. Nothing given is all of them. */
export interface MessageFilter {
  /** At most 1,000. */
  readonly ids?: readonly string[];
  readonly type?: string;
  readonly topic?: string;
  readonly key?: string;
  readonly source?: string;
  readonly correlationId?: string;
  /** Appended at this moment or later. */
  readonly createdFrom?: Date;
  /** Appended before this moment. */
  readonly createdBefore?: Date;
  /** At least so many failed tries. */
  readonly minAttempts?: number;
  /** Its last error has this in it, as it is written. */
  readonly error?: string;
}

export interface BoxOption {
  /** Defaults to "outbox". */
  readonly box?: string;
}

export interface ListOptions extends MessageFilter, BoxOption {
  /**
   * One or several; they are listed one after the other. Defaults to all, in the order of the type's definition; for an inbox, to
   * all but `done`.
   */
  readonly status?: Status | readonly Status[];
  /** At most 1,000. Defaults to 50. */
  readonly limit?: number;
  /** The `next` of the page before. Defaults to the first page. */
  readonly after?: string | undefined;
}

/** One try that failed. */
export interface Failure {
  readonly attempt: number;
  readonly at: Date;
  readonly error: string;
}

/** A message and where it stands, without its data. */
export interface StoredMessage {
  readonly status: Status;
  /** Its place in the order of the box; scheduled messages are numbered by themselves. */
  readonly position: number;
  readonly lane: number;
  readonly id: string;
  readonly type: string;
  readonly topic: string;
  readonly source: string;
  readonly key?: string;
  /** How many bytes its data has. */
  readonly bytes: number;
  /** Failed tries; of one that is done, all. */
  readonly attempts: number;
  readonly lastError?: string;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** When a waiting or scheduled one goes on. Absent while its key is held until somebody releases it. */
  readonly dueAt?: Date;
  /** Of a scheduled one, if it has one. */
  readonly scheduleKey?: string;
  readonly publishedAt?: Date;
}

/** All that is known of one. */
export interface StoredMessageDetails extends StoredMessage {
  readonly message: Message;
  /**
   * Why the stored row is no message, such as "headers is not an object of strings"; `message` is what could be read of it. It can
   * be discarded, and is never sent. Absent otherwise.
   */
  readonly unreadable?: string;
  /** The last 20 tries that failed, oldest first. */
  readonly failures: readonly Failure[];
}

export interface MessagePage {
  /** Status by status, each the newest first. */
  readonly messages: readonly StoredMessage[];
  /** Give it as `after` to go on; absent on the last page. */
  readonly next?: string;
}

export interface StatusStats {
  readonly count: number;
  /** How long the first of them has been there; of scheduled ones, how long the first is overdue. Absent where there are none. */
  readonly oldestAgeMs?: number;
}

export interface StatsOptions extends BoxOption {
  /** Counts what is done, too, which takes as long as there is much of it. Defaults to false. */
  readonly done?: boolean;
}

/** A box at one moment. */
export interface BoxStats {
  readonly pending: StatusStats;
  readonly waiting: StatusStats;
  readonly scheduled: StatusStats;
  readonly parked: StatusStats;
  /** Only when asked for. */
  readonly done?: StatusStats;
  /** The same, but for what is done, per topic, in order of its name; and how long the first has been there that is to be sent. */
  readonly topics: readonly (Readonly<Record<Exclude<Status, "done">, number>> & {
    readonly topic: string;
    readonly oldestAgeMs?: number;
  })[];
  /** Keys that are held; and those of them that stay so until somebody releases them. */
  readonly heldKeys: { readonly count: number; readonly forGood: number };
  readonly paused: boolean;
  readonly lanes: {
    /** Those that no living relay has. */
    readonly unowned: number;
    /** In order of their names. A relay that stands by has none; one that does not live has died, and loses them. */
    readonly owners: readonly { readonly owner: string; readonly lanes: number; readonly lives: boolean }[];
  };
}

/** Whoever changes something. */
export interface Operator {
  /** Who. It stands in the audit. */
  readonly by: string;
  /** Why. Defaults to nothing. */
  readonly reason?: string;
}

/**
 * Which messages to change: by id; or by anything else, and then only what a dry run has counted, with its `confirm`.
 */
export interface Selection extends MessageFilter, BoxOption {}

export interface ChangeOptions extends Operator {
  /** The token of a dry run of the same change with the same selection. Needed unless `ids` are given. */
  readonly confirm?: string;
}

export interface DryRunOptions {
  /** At most so many are changed, the first ones. At most 1,000,000. Defaults to 10,000. */
  readonly limit?: number;
}

export interface DryRun {
  /** How many would be changed. */
  readonly count: number;
  /** Whether there are more than `limit`. */
  readonly more: boolean;
  /** Confirms just these: what comes to where they are later is not among them. */
  readonly confirm: string;
}

export interface Changed {
  readonly count: number;
}

export interface RetrySelection extends Selection {
  /**
   * Where from. `parked` ones are tried again; `waiting` ones now instead of later; and with `pending`, whoever has had them
   * on their way for too long loses them. Defaults to "parked".
   */
  readonly status?: "parked" | "waiting" | "pending";
}

export interface DiscardSelection extends Selection {
  /** Where from; not from `done`, which is history. Defaults to "parked". */
  readonly status?: Exclude<Status, "done">;
}

export interface ReplayOptions extends ChangeOptions {
  /** How many messages per second are put back at most. Defaults to 1,000. */
  readonly perSecond?: number;
  /** Ends it between two batches; what was put back stays so. */
  readonly signal?: AbortSignal;
}

export interface AuditOptions {
  /** Defaults to all of them. */
  readonly box?: string;
  /** At most 1,000. Defaults to 50. */
  readonly limit?: number;
  /** Older than the entry with this number. Defaults to the newest. */
  readonly before?: number;
}

export interface AuditEntry {
  readonly number: number;
  readonly at: Date;
  readonly box: string;
  readonly action: "retry" | "discard" | "replay" | "pause" | "resume" | "release" | "drop";
  readonly by: string;
  readonly reason?: string;
  /** What was selected, where it was messages; the key, where it was one. */
  readonly selection?: Readonly<Record<string, unknown>>;
  readonly count: number;
  /** The messages that were changed. */
  readonly ids: readonly string[];
}

/**
 * What an operator does with the boxes of a store. Bad input is `option-invalid` and changes nothing. Large changes are made in
 * batches, each in a transaction of its own with its entry in the audit: a crash in between leaves those that were made.
 */
export interface Admin {
  /** The names of all boxes: the outbox, and one for each consumer that has ever run with an inbox. */
  boxes(): Promise<readonly string[]>;
  stats(options?: StatsOptions): Promise<BoxStats>;
  list(options?: ListOptions): Promise<MessagePage>;
  /** Everything that has this id: a replayed message is in more than one place. */
  get(id: string, options?: BoxOption): Promise<readonly StoredMessageDetails[]>;
  /** What was changed, newest first. */
  audit(options?: AuditOptions): Promise<readonly AuditEntry[]>;

  /**
   * Sends parked messages again, with their attempts counted anew. One whose key is held goes back to its place, before all
   * that wait there, and if it was what held it the key goes on; any other is appended anew. What waits or is stuck stays in its
   * place: see `RetrySelection`. What is unreadable stays parked, and is not counted.
   */
  retry(selection: RetrySelection, options: ChangeOptions): Promise<Changed>;
  /**
   * Removes messages for good. What a relay has on its way may still be sent. A key that waited for one of them, parked or
   * waiting, goes on now.
   */
  discard(selection: DiscardSelection, options: ChangeOptions): Promise<Changed>;
  /**
   * Sends what is done once more, each message once, in their order, with the same ids: consumers with an inbox skip what they
   * have handled. An inbox keeps nothing that was handled, so its outbox is where to replay. With the same `confirm` again it goes on where it ended, and does nothing twice.
   */
  replay(selection: Selection, options: ReplayOptions): Promise<Changed>;
  /** What a change would do, without doing it. */
  dryRun(action: "replay", selection: Selection, options?: DryRunOptions): Promise<DryRun>;
  dryRun(action: "retry", selection: RetrySelection, options?: DryRunOptions): Promise<DryRun>;
  dryRun(action: "discard", selection: DiscardSelection, options?: DryRunOptions): Promise<DryRun>;

  /** Lets relays finish what is on its way and send nothing more, within a third of their lease. Appending goes on. */
  pause(options: Operator & BoxOption): Promise<void>;
  resume(options: Operator & BoxOption): Promise<void>;
  /** Lets a held key go on now, whatever it waits for. False: it is not held. */
  release(key: string, options: Operator & BoxOption): Promise<boolean>;
}

/** What becomes of what is done, in every store; some have options beside these. */
export interface PurgeOptions extends BoxOption {
  /** How long it is kept at least. */
  readonly retentionMs: number;
  /**
   * Gets everything before it is removed, in batches, each in order of position; what it rejects stays. After a crash, or a
   * stop, it may get some again. The signal is aborted when it should end. Defaults to nothing.
   */
  readonly archive?: (messages: readonly ArchivedMessage[], signal: AbortSignal) => Promise<void>;
  readonly signal?: AbortSignal;
}

export interface ArchivedMessage {
  readonly message: Message;
  readonly position: number;
  readonly attempts: number;
  readonly createdAt: Date;
  readonly publishedAt: Date;
}

export interface Purged {
  /** Somebody else is at it: nothing was done. */
  readonly busy: boolean;
  readonly removed: number;
}
