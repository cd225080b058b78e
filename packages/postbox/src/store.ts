import type { Admin, Purged, PurgeOptions } from "./admin.js";
import { PostboxError } from "./errors.js";
import type { AnyProblem, Health, HealthOptions } from "./health.js";
import type { Message } from "./message/message.js";
import type { OptionRule } from "./options.js";
import type { Origin } from "./transport.js";

/*
 * The database seam. A store keeps boxes and the inbox's memory, and knows the transactions of the library that its user
 * works with (`Tx` is that library's own handle). Times are the database's. A position is unique in its box, and is given before
 * commit, so that a lower one may appear later, unless the box is `inCommitOrder`.
 */

export type IsolationLevel = "read committed" | "repeatable read" | "serializable";

export interface TransactionOptions {
  /** Defaults to the database's own default. */
  readonly isolation?: IsolationLevel;
  /**
   * When it is aborted, and `work` does not end soon after, the transaction is ended by force: the database rolls it back and frees
   * its locks, its handle can do nothing more, and the call rejects with the signal's reason, while `work` may still run.
   */
  readonly signal?: AbortSignal;
  /**
   * `work` begins with a verb of the store, such as `remember`, before it awaits anything, and does nothing else until that has answered.
   * BEGIN may then be sent together with its statement, which saves a round trip. Defaults to false.
   */
  readonly startsWithStatement?: boolean;
}

export interface AppendOptions {
  /**
   * Before a message gets its position, waits until every other transaction that has appended to its key in this way has
   * ended: then the order of positions is that of the commits. Messages without a key wait for nobody. Transactions
   * that wait for each other are a deadlock, which the database ends. Defaults to false.
   */
  readonly strictKeyOrder?: boolean;
}

export interface Store<Tx = unknown> {
  readonly name: string;
  /** How many transactions its pool lets be open at a time; absent where that is not known, not bounded, or nobody's choice. */
  readonly maxTransactions?: number;
  /**
   * Runs `work` in a transaction: commits when it resolves, rolls back when it rejects, and rejects when the database
   * rolled back instead of committing. Inside, `current()` is that transaction; another one inside of it is an error
   * (`transaction-nested`), since it could not commit with it.
   */
  transaction<R>(work: (tx: Tx) => Promise<R>, options?: TransactionOptions): Promise<R>;
  /** The transaction that surrounds the caller, through any number of awaits; undefined outside of one. */
  current(): Tx | undefined;
  /** Whether a transaction failed for others that ran beside it (a deadlock, a serialization failure): run it again, all of it. */
  isConflict(error: unknown): boolean;
  /** Whether a transaction failed since the database went away: what it did has not happened, or is not known to have. */
  isUnavailable(error: unknown): boolean;
  /** Whether a transaction failed since the database knows no such user, password or database. */
  isRefused(error: unknown): boolean;
  /**
   * Writes messages into a box within `tx`, in one statement, in their order. Throws before touching `tx` when it is no transaction.
   *
   * A message with a `scheduleKey` is scheduled, even if it is due, and replaces the one of its type and key that is still
   * scheduled. It waits for another transaction that has replaced or cancelled the same one, or scheduled it first. Two calls never
   * deadlock over their schedule keys; transactions that make several calls may, and the database then fails one of them.
   */
  append(tx: Tx, box: string, messages: readonly Message[], options?: AppendOptions): Promise<void>;
  /**
   * Removes within `tx` the message of this type and schedule key that is still scheduled in a box; resolves to whether there was
   * one. False: none was committed, or a relay has appended it, so that it is sent. If a relay is appending it, waits until that
   * has committed (false) or rolled back (true). A relay does not wait: it passes over what an open transaction has cancelled.
   */
  cancel(tx: Tx, box: string, type: string, scheduleKey: string): Promise<boolean>;
  /**
   * The state of a schedule within `tx`, by its name; one that is not known begins now. With `claim`, moves its last tick from `after`
   * on to `tick`, if it still is `after` and `tick` is later and not in the future by the database's clock: `claimed` says whether it
   * did. Waits for another transaction that claims, or begins, the same schedule, so of several that claim from the same `after`
   * one succeeds; if that rolls back, the next one does.
   */
  tick(tx: Tx, schedule: string, claim?: TickClaim): Promise<ScheduleState>;
  /** What consumers have handled, and the way into the box of each, `inboxOf(consumer)`. */
  readonly inbox: Inbox<Tx>;
  /** The relay's side of a box: "outbox", or a consumer's inbox. */
  box(name: string): Box;
  /**
   * Runs `task`, which must not throw, once `tx` has committed, and never if it rolls back; answers false, and does not, if the store did not open `tx` and so
   * cannot know. Absent: it never knows.
   */
  afterCommit?(tx: Tx, task: () => void): boolean;
  /** The operator's side of all boxes. */
  readonly admin: Admin;
  /**
   * Removes what is done and older than `retentionMs`, and nothing else; one at a time, whoever calls it. A relay with
   * `retentionMs` calls it by itself.
   */
  purge(options: PurgeOptions): Promise<Purged>;
  /**
   * How the options of `purge` are checked that only this store has, by their names. A relay takes them beside its own and hands them on.
   * Defaults to none.
   */
  readonly purgeRules?: Readonly<Record<string, OptionRule>>;
  /**
   * What is wrong with its boxes. Throws only over bad options: that the database cannot be reached is a problem like any other.
   * It changes nothing, ends in time, and is cheap enough to be asked for every few seconds, however much is stored. A store may have
   * limits and problems of its own.
   */
  health(options?: HealthOptions): Promise<Health<AnyProblem>>;
  /** Brings the schema up to date. Safe when many call it at once; never called by the library itself. */
  migrate(): Promise<void>;
}

/** From which tick of a schedule to which; both in ms since 1970. */
export interface TickClaim {
  readonly after: number;
  readonly tick: number;
}

/** Where a schedule stands; times are whole ms since 1970, but for `now`. */
export interface ScheduleState {
  /** Chosen at random when the schedule began: in another database, a schedule of this name has another one. */
  readonly id: string;
  /** The last tick that was claimed, or when the schedule began. */
  readonly lastTick: number;
  /** The database's clock. */
  readonly now: number;
  readonly claimed: boolean;
}

/** The unit of order and of ownership: a key's hash picks one of 64. A greater epoch ends the lower one's rights. */
export interface Lane {
  readonly lane: number;
  readonly epoch: number;
}

/** A lane that was just taken. */
export interface TakenLane extends Lane {
  /** Whether its last owner gave it back. Else that one died, or lost it, with messages on their way. */
  readonly clean: boolean;
}

/** What order a relay keeps. All relays of a box keep the same. */
export type Order = "key" | "total" | "none";

/** Another one who shares the lanes of a box, or did. */
export interface Member {
  readonly owner: string;
  readonly order: Order;
  /** Counts its renewals: who does not live does not beat, whatever the database's clock says. */
  readonly beat: number;
  readonly leaseMs: number;
  /** In how many ms its lease runs out, by the database's clock; not above 0 when it has. */
  readonly expiresInMs: number;
}

/** What a member of a box sees when it has renewed its lease. */
export interface Membership {
  /** Whether an operator has paused the box: whoever owns lanes gives them back. */
  readonly paused: boolean;
  readonly others: readonly Member[];
  /** The lanes that are still its own. */
  readonly lanes: readonly Lane[];
}

export interface OwnOptions {
  /** Members whose lanes may be taken though their lease stands, unless they have beaten again. Defaults to none. */
  readonly dead?: readonly Pick<Member, "owner" | "beat">[];
  /** Takes no lane at all if it would get fewer than these. Defaults to 0. */
  readonly least?: number;
  /** Lanes that it does not want. Defaults to none. */
  readonly except?: readonly number[];
}

/**
 * Writers in progress: transactions that have not ended and may have appended to a box. Only its store knows what identifies them, such
 * as ranges of transaction numbers, or rows in which writers register. A relay keeps what it was given, and compares it with what it is
 * given later. A bulk load may have hundreds of thousands of numbers.
 */
export interface Writers {
  /** Whether there are none. */
  readonly none: boolean;
  /** Those of them that are not among `others`, which come from the same box. */
  without(others: Writers): Writers;
}

/** Rows, and the writers in progress at the moment they were read. */
export interface ReadRows<R extends Row = Row> {
  readonly rows: readonly R[];
  /** Only these can make a row appear below a position that was found. Absent where the box is `inCommitOrder`. */
  readonly writers?: Writers;
}

/** What `read` found in the lanes, all at one moment. */
export interface LaneRows extends ReadRows {
  /** The lanes that may have more than was found, because a limit was reached. */
  readonly more: ReadonlySet<number>;
  /**
   * Every position up to this one was drawn before that moment. In a lane without `more`, a row that appears at or below it later
   * comes from one of `writers`. 0 where the store cannot tell.
   */
  readonly drawn: number;
  /**
   * Which server answered. A different value than before means that commits may have been lost in a failover: positions and epochs
   * that were read earlier may have been given to other messages and owners. Absent where that cannot happen.
   */
  readonly server?: string;
}

/** What `late` found. */
export interface LateRows extends ReadRows<LateRow> {
  /** Whether there may be more beyond the last row, because a limit was reached. */
  readonly more: boolean;
}

/** Where to go on reading a lane. */
export interface LaneRead {
  readonly lane: number;
  /** Rows of `pending` beyond this position. Defaults to all. */
  readonly after?: number;
  readonly limit: number;
}

/** Where to look for rows that have committed late: a reader may have passed their positions. */
export interface LaneGap {
  readonly lane: number;
  readonly after: number;
  readonly upTo: number;
  /** What the reader has found there already. */
  readonly known: readonly number[];
}

/** A row that became visible below where its lane had been read to. */
export interface LateRow extends Row {
  /** How long ago it was appended. */
  readonly ageMs: number;
}

/** One stored message that is still to be sent. */
export interface Row {
  readonly lane: number;
  readonly position: number;
  readonly message: Message;
  /** Failed tries so far. */
  readonly attempts: number;
  /** How often it was on its way when a process or a connection died, as far as it was counted. */
  readonly crashes: number;
  /** From `wait`: it failed, or stands behind one of its key that did. Else from `pending`. */
  readonly waiting: boolean;
  /** Why its columns make no message, if they do not: it is to be parked as it is. `message` has as much as could be read. */
  readonly fault?: PostboxError;
  /** In `pending`, but its key is held: it must go behind those that wait, not out. */
  readonly held: boolean;
  /** Of one that waits: how often an operator has put it back to its place. What is settled is the row of this turn. */
  readonly turn?: number;
}

export interface SettleOptions {
  /** Keeps what was sent in `done` instead of deleting it. Defaults to false. */
  readonly keep?: boolean;
  /** What goes to `wait` is held by itself and not by its key. Defaults to false. */
  readonly alone?: boolean;
}

/**
 * What becomes of a row. `sent`: no verb finds it again. Whether the store deletes it, moves it, or only notes how far a lane was
 * sent, is its own affair. `wait` with `retryInMs` (re)sets the hold of its key; without, it only queues up behind it.
 * `parked` with `hold` holds its key, if it has one, until an operator frees it: no other row of the key does. `pending` counts a failed attempt and leaves the row
 * where it is, to be read again: its owner keeps the order by itself, and nothing behind it has to move.
 * `dropped` leaves nothing but an entry in the audit, one for each reason. Whatever it is, its crashes are forgotten.
 */
export type Settlement = { readonly row: Row } & (
  | { readonly to: "sent" }
  | { readonly to: "dropped"; readonly reason: string }
  | { readonly to: "wait"; readonly attempts: number; readonly retryInMs?: number; readonly error?: string }
  | { readonly to: "parked"; readonly attempts: number; readonly error: string; readonly hold?: boolean }
  | { readonly to: "pending"; readonly attempts: number; readonly error: string }
);

export interface Promoted {
  readonly count: number;
  readonly nextInMs?: number;
}

/** How a settle went. */
export interface Settled {
  /** The lanes whose epoch still stands. In all others nothing was changed. */
  readonly standing: ReadonlySet<number>;
  /** Its own transaction, if reads may have shown it among the writers in progress: it has appended nothing. */
  readonly writer?: Writers;
}

export interface ReadOptions {
  /** The read stops after the row with which its rows reach so many bytes: a first row is always found. Defaults to 16 MiB. */
  readonly maxBytes?: number;
}

export interface DueOptions extends ReadOptions {
  /** What rows are held under that the reader has already: their key, or for a row that waits alone U+0001 and its id. Defaults to none. */
  readonly except?: readonly string[];
}

/**
 * The relay's side of a box. Every write to the rows of a lane carries its epoch and locks it against a take-over, so that
 * what an owner does after it lost a lane changes nothing there. What is scheduled is in no lane yet.
 *
 * A caller gives a call up by its signal. The store then ends the statement on the server and gives the connection back: calls that
 * were given up never take more than a fixed number of connections, and none waits on in the server. Whether such a call has
 * happened is unknown; every verb may be repeated.
 */
export interface Box {
  /**
   * Whether rows appear in the order of their positions: none ever appears below one that was found. Relays then look for no late
   * commits, and a total order never waits for one. Defaults to false.
   */
  readonly inCommitOrder?: boolean;
  /** Joins those who share the lanes of this box, or stays among them, for `leaseMs`. Keeps what it owns that long. */
  renew(owner: string, leaseMs: number, order: Order, signal?: AbortSignal): Promise<Membership>;
  /**
   * Takes up to `most` more lanes for a member whose lease stands, of those that are nobody's or whose owner's lease has
   * run out. Answers with the ones it got, each with a higher epoch than before.
   */
  own(owner: string, most: number, options?: OwnOptions, signal?: AbortSignal): Promise<readonly TakenLane[]>;
  /** Gives these lanes back at once, those of them that are still its own; without any named, gives all back and leaves. */
  release(owner: string, lanes?: readonly Lane[], signal?: AbortSignal): Promise<void>;
  /**
   * Of each lane, the first `limit` rows of `pending` beyond a position, in order of position, taking the lanes in the order given.
   */
  read(lanes: readonly LaneRead[], options?: ReadOptions, signal?: AbortSignal): Promise<LaneRows>;
  /**
   * Of each lane, the first rows of `wait` of each key whose hold is due, those due longest first, at most `limit`; in order of
   * position.
   */
  due(lanes: readonly Omit<LaneRead, "after">[], options?: DueOptions, signal?: AbortSignal): Promise<readonly Row[]>;
  /** The first `limit` rows of `pending` in these ranges that the reader does not know, in order of position over all lanes. */
  late(gaps: readonly LaneGap[], limit: number, options?: ReadOptions, signal?: AbortSignal): Promise<LateRows>;
  /**
   * Appends up to `limit` of the scheduled messages that are due, the first due first; several may call it at once. Passes over
   * those that an open transaction has replaced or cancelled. Answers with how many these were, and in how many ms the next one is
   * due, if there is one.
   */
  promote(limit: number, signal?: AbortSignal): Promise<Promoted>;
  /** Notes the crashes of rows, before they are sent; answers with the lanes whose epoch still stands. */
  suspect(lanes: readonly Lane[], rows: readonly Row[], signal?: AbortSignal): Promise<ReadonlySet<number>>;
  /**
   * Moves rows, each of them named once, to what became of them, all in one step. A row is the one that was read only if its
   * message has the same id.
   */
  settle(
    lanes: readonly Lane[],
    settlements: readonly Settlement[],
    options?: SettleOptions,
    signal?: AbortSignal,
  ): Promise<Settled>;
}

/** How many bytes a read brings unless it is told otherwise. */
export const defaultReadBytes = 16 * 1024 * 1024;

/** The box that keeps what a consumer has not handled yet. */
export function inboxOf(consumer: string): string {
  return `inbox/${consumer}`;
}

/** A message as it came to a consumer, with what is remembered of it. */
export interface Arrival {
  readonly consumer: string;
  readonly message: Message;
  /** What it is known by: its own id, unless the consumer says otherwise. */
  readonly id: string;
  /** A hash of its data. Absent: nobody asks whether two of one id are the same. */
  readonly hash?: string;
  /** Whether its data is remembered, too. Defaults to false. */
  readonly storePayload?: boolean;
  readonly origin?: Origin;
  /** Who handles it. */
  readonly handler?: string;
}

/** `differs`: it is known, but with other data. `too-old`: its `time` is outside of the retention window, and its id not remembered. */
export type Remembered = "new" | "duplicate" | "differs" | "too-old";

export interface RememberOptions {
  /** How long an id is remembered, from its arrival or from the message's own `time`, whichever is later. */
  readonly retentionMs: number;
  /** How long to wait for another transaction that has the same message. Then: `inbox-busy`. */
  readonly lockTimeoutMs: number;
}

/** What becomes of a message that is not handled now: tried again later, or not before somebody says so. */
export type Aside =
  | { readonly to: "wait"; readonly attempts: number; readonly retryInMs: number; readonly error: string }
  | {
      readonly to: "parked";
      readonly attempts: number;
      readonly error: string;
      /** Also what is known, and not remembered: to be looked at. Defaults to false. */
      readonly anyway?: boolean;
    };

/**
 * The inbox of all consumers: what each has taken over, once each, by (consumer, id). Taken over is what was handled, and what
 * is kept in the consumer's box.
 */
export interface Inbox<Tx> {
  /**
   * Remembers within `tx` that its consumer handles this message, unless it is known. Does not abort `tx`, but for
   * `inbox-busy`. While another transaction remembers the same one, it waits for that one's end.
   */
  remember(tx: Tx, arrival: Arrival, options: RememberOptions): Promise<Remembered>;
  /** Appends those of these that are new to the box of their consumer, which all have in common, in their order, all in one step. */
  keep(arrivals: readonly Arrival[], options: RememberOptions, signal?: AbortSignal): Promise<readonly Remembered[]>;
  /**
   * Puts one aside in the box of its consumer, in a transaction of its own; only what is new, unless `anyway`. If its key is held
   * already, the message waits behind the others, and the key stays due when it was.
   */
  setAside(arrival: Arrival, aside: Aside, options: RememberOptions, signal?: AbortSignal): Promise<Remembered>;
  /**
   * Takes a row out of the box of its consumer within `tx`, as handled. False: its lane has another owner than the one of `epoch`, or
   * it is not there any more; then roll back.
   */
  handled(tx: Tx, arrival: Arrival, row: Row, epoch: number): Promise<boolean>;
}

/**
 * Runs one SQL statement with `$n` placeholders in a user's transaction, through whatever library opened it. Throws or rejects,
 * also once the transaction has ended.
 */
export type Executor = (
  text: string,
  params: readonly unknown[],
) => Promise<{ readonly rows: readonly Record<string, unknown>[]; readonly rowCount: number }>;

/**
 * A statement that writes in a user's transaction, with a place for a condition. If a library cannot tell whether that transaction is
 * still open, it adds the condition that the statement runs inside of it. Made once by a store, with `guardedStatement`.
 */
export interface GuardedStatement {
  /** Without a condition. */
  readonly text: string;
  /** Under a condition: an expression in SQL that is true, or fails. It may use `$n` beyond the statement's own. */
  under(condition: string): string;
}

/** An `Executor` of what a store reads, as text, and of what it writes. */
export type TransactionExecutor = (
  statement: string | GuardedStatement,
  params: readonly unknown[],
) => ReturnType<Executor>;

/** A session of a database: its number, which another one may have later, and when it began; and when its transaction did, if known. */
export interface SessionId {
  readonly pid: number;
  readonly startedAt: string;
  readonly begunAt?: string;
}

/** Where a transaction runs, so that it can be ended from outside. */
export interface TransactionSession {
  /** Undefined where the database did not say. */
  readonly id: SessionId | undefined | Promise<SessionId | undefined>;
  /** Closes its connection at this end, where the library shows it. */
  close?(): void;
}

/** What a transaction of a library is begun with. */
export interface BeginOptions extends TransactionOptions {
  /**
   * Called with what closes its connection at this end, as soon as it has one and before BEGIN, where the library shows it: a
   * connection that gives no answer must not be waited for.
   */
  connected?(close: () => void): void;
}

/** Which SQL a database understands. A store and the library whose transactions it works in have the same. */
export type Dialect = "postgres" | "mysql" | "sqlite";

/** How a SQL store works inside the transactions of one library (`pg`, Drizzle …). An adapter is this and no more. */
export interface TransactionLibrary<Tx, D extends Dialect = Dialect> {
  readonly name: string;
  /** That of the database which the library works on. A store of another one refuses it. */
  readonly dialect: D;
  /** Of its pool; absent where that is not known. */
  readonly maxTransactions?: number;
  /** The executor of an open transaction. For anything else (a pool, an ended one) throws `not-a-transaction`. */
  executor(tx: Tx): TransactionExecutor;
  /** `Store.transaction` in that library's own way. If `signal` is aborted at the end, its connection is not used again. */
  begin<R>(work: (tx: Tx) => Promise<R>, options?: BeginOptions): Promise<R>;
  /** The session of a transaction that `begin` has just opened. Without it, a transaction cannot be ended by force. */
  session?(tx: Tx): TransactionSession;
  /**
   * Asked when the function of a transaction has ended. Returns undefined if no statement is under way, which must be cheap. Otherwise
   * waits until none is, for a bounded time, and rejects with `not-awaited`; resolves if what was under way is harmless, such as
   * closing a cursor. If statements do not end, closes the connection. Without it, statements that are not awaited go unnoticed.
   */
  refuseUnawaited?(tx: Tx): Promise<void> | undefined;
}

/** The transaction of `store` that surrounds the caller, for repositories deep in user code. Throws outside of one. */
export function currentTransaction<Tx>(store: Store<Tx>): Tx {
  const tx = store.current();
  if (tx !== undefined) return tx;
  throw new PostboxError(
    "transaction-missing",
    `no transaction of ${store.name} is open here; call it inside store.transaction(...) or behind transaction(store)`,
  );
}
