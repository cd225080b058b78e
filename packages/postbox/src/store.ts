import type { Admin, Purged, PurgeOptions } from "./admin.js";
import { PostboxError } from "./errors.js";
import type { AnyProblem, Health, HealthOptions } from "./health.js";
import type { Message } from "./message/message.js";
import type { OptionRule } from "./options.js";
import type { Origin } from "./transport.js";

/*
 * The database seam. A store keeps boxes, and what consumers have handled. `Tx` is the transaction handle of the user's
 * library. All times are the database's. A position is unique in its box. It is given before commit, so a lower one may
 * appear later, unless the box is `inCommitOrder`.
 */

/** The isolation level of a transaction, as in the SQL standard. */
export type IsolationLevel = "read committed" | "repeatable read" | "serializable";

/** Options of `store.transaction` and `transaction`. */
export interface TransactionOptions {
  /** Defaults to the database's own default. */
  readonly isolation?: IsolationLevel;
  /**
   * If it is aborted and `work` does not end soon after, the transaction is ended by force. The database rolls it back
   * and frees its locks, its handle becomes unusable, and the call rejects with the signal's reason. `work` may still
   * be running then.
   */
  readonly signal?: AbortSignal;
  /**
   * Promises that `work` calls a verb of the store, such as `remember`, before it awaits anything, and does nothing
   * else until the verb has answered. BEGIN may then be sent together with its statement, which saves a round trip.
   * Defaults to false.
   */
  readonly startsWithStatement?: boolean;
}

/** Options of `store.append`. */
export interface AppendOptions {
  /**
   * Makes the positions of a key follow the order of commits. Before a message gets its position, the append waits
   * until all other transactions that have appended to its key with this option have ended. Messages without a key do
   * not wait. Transactions that wait for each other deadlock, and the database ends one of them. Defaults to false.
   */
  readonly strictKeyOrder?: boolean;
}

/** A database that keeps boxes of messages and runs transactions; `Tx` is the handle of a transaction. */
export interface Store<Tx = unknown> {
  readonly name: string;
  /**
   * How many transactions its pool can have open at a time. Absent if that is unknown, unbounded, or not configurable.
   */
  readonly maxTransactions?: number;
  /**
   * Runs `work` in a transaction. Commits when `work` resolves, rolls back when it rejects, and rejects if the database
   * rolled back instead of committing. Inside, `current()` returns that transaction. Calling it again inside fails with
   * `transaction-nested`, since the inner transaction could not commit with the outer one.
   */
  transaction<R>(work: (tx: Tx) => Promise<R>, options?: TransactionOptions): Promise<R>;
  /** The transaction that surrounds the caller, across any number of awaits; undefined outside of one. */
  current(): Tx | undefined;
  /**
   * Whether a transaction failed because of concurrent ones (a deadlock, a serialization failure). Run all of it again.
   */
  isConflict(error: unknown): boolean;
  /** Whether a transaction failed because the connection was lost: it was rolled back, or its outcome is unknown. */
  isUnavailable(error: unknown): boolean;
  /** Whether a transaction failed because authentication failed, or the database does not exist. */
  isRefused(error: unknown): boolean;
  /**
   * Appends messages to a box within `tx`, in one statement, in their order. If `tx` is not a transaction, throws
   * before using it.
   *
   * A message with a `scheduleKey` is scheduled, even if it is due, and replaces the scheduled message of its type and
   * key. It waits for other transactions that have replaced or cancelled that message, or scheduled it first. Single
   * calls never deadlock over schedule keys. Transactions that make several calls may; the database then fails one of
   * them.
   */
  append(tx: Tx, box: string, messages: readonly Message[], options?: AppendOptions): Promise<void>;
  /**
   * Removes the scheduled message of this type and schedule key from a box, within `tx`. Resolves to whether there was
   * one. False: none was committed, or a relay has already appended it, so it is sent. If a relay is appending it,
   * waits until that has committed (false) or rolled back (true). A relay does not wait: it skips messages that an open
   * transaction has cancelled.
   */
  cancel(tx: Tx, box: string, type: string, scheduleKey: string): Promise<boolean>;
  /**
   * Returns the state of a schedule, by its name, within `tx`. An unknown schedule begins now.
   *
   * With `claim`, moves its last tick from `after` to `tick` and sets `claimed`. The claim fails if the last tick is no
   * longer `after`, or if `tick` is not later, or is in the future by the database's clock. Waits for other
   * transactions that claim or begin the same schedule. So of several claims from the same `after`, one succeeds; if
   * its transaction rolls back, the next one does.
   */
  tick(tx: Tx, schedule: string, claim?: TickClaim): Promise<ScheduleState>;
  /** What consumers have handled, and access to the box of each, `inboxOf(consumer)`. */
  readonly inbox: Inbox<Tx>;
  /** The relay's side of a box: "outbox", or a consumer's inbox. */
  box(name: string): Box;
  /**
   * Runs `task`, which must not throw, once `tx` has committed, and never if it rolls back. Returns false without
   * running it if the store did not open `tx`, and so does not learn of its end. Absent if the store never does.
   */
  afterCommit?(tx: Tx, task: () => void): boolean;
  /** The operator's side of all boxes. */
  readonly admin: Admin;
  /**
   * Removes messages that were done more than `retentionMs` ago, and nothing else. Only one purge runs at a time.
   * Relays with `retentionMs` call it themselves.
   */
  purge(options: PurgeOptions): Promise<Purged>;
  /**
   * The rules for options of `purge` that only this store has, by name. A relay accepts these options too and passes
   * them on. Defaults to none.
   */
  readonly purgeRules?: Readonly<Record<string, OptionRule>>;
  /**
   * Reports the problems of its boxes. Throws only for invalid options: an unreachable database is a problem like any
   * other.
   *
   * It changes nothing, ends within a bounded time, and is cheap enough to be called every few seconds, however much is
   * stored. A store may have limits and problems of its own.
   */
  health(options?: HealthOptions): Promise<Health<AnyProblem>>;
  /** Brings the schema up to date. Safe to call concurrently; the library itself never calls it. */
  migrate(): Promise<void>;
}

/** A store whose database answers synchronously, so that messages can be appended in a synchronous transaction. */
export interface SyncStore<Tx = unknown> extends Store<Tx> {
  /** The same as `append`, without a promise. */
  appendSync(tx: Tx, box: string, messages: readonly Message[], options?: AppendOptions): void;
}

/** Moves the last tick of a schedule from `after` to `tick`; both in ms since 1970. */
export interface TickClaim {
  readonly after: number;
  readonly tick: number;
}

/** The state of a schedule. Times are in ms since 1970, whole except for `now`. */
export interface ScheduleState {
  /** Chosen at random when the schedule began. A schedule of the same name in another database has another id. */
  readonly id: string;
  /** The last claimed tick, or when the schedule began. */
  readonly lastTick: number;
  /** The database's clock. */
  readonly now: number;
  readonly claimed: boolean;
}

/**
 * The unit of order and ownership: the hash of a key picks one of 64 lanes. Writes with a lower epoch than the current
 * one change nothing.
 */
export interface Lane {
  readonly lane: number;
  readonly epoch: number;
}

/** A lane that was just taken. */
export interface TakenLane extends Lane {
  /** Whether the last owner gave it back. If not, the owner crashed or lost the lane, with messages in flight. */
  readonly clean: boolean;
}

/** The order that a relay keeps. All relays of a box keep the same. */
export type Order = "key" | "total" | "none";

/** Another relay of a box, running or not. */
export interface Member {
  readonly owner: string;
  readonly order: Order;
  /** Counts its renewals. A crashed member does not renew, whatever the database's clock says. */
  readonly beat: number;
  readonly leaseMs: number;
  /** When its lease expires, in ms by the database's clock; 0 or below if it has expired. */
  readonly expiresInMs: number;
}

/** What the renewal of a lease returns. */
export interface Membership {
  /** Whether an operator has paused the box. Then owners give their lanes back. */
  readonly paused: boolean;
  readonly others: readonly Member[];
  /** The lanes that it still owns. */
  readonly lanes: readonly Lane[];
}

/** Options of `Box.own`. */
export interface OwnOptions {
  /**
   * Members whose lanes may be taken although their lease is valid, unless they have sent another heartbeat. Defaults
   * to none.
   */
  readonly dead?: readonly Pick<Member, "owner" | "beat">[];
  /** Takes no lane at all if it would get fewer than this. Defaults to 0. */
  readonly least?: number;
  /** Lanes that it does not take. Defaults to none. */
  readonly except?: readonly number[];
}

/**
 * Writers in progress: transactions that have not ended and may have appended to a box. How they are identified is up
 * to the store, for example by ranges of transaction ids, or by rows in which writers register. A relay keeps such a
 * value and compares it with later ones. A bulk load may have hundreds of thousands of transaction ids.
 */
export interface Writers {
  /** Whether there are none. */
  readonly none: boolean;
  /** These writers without `others`, which come from the same box. */
  without(others: Writers): Writers;
}

/** Rows, and the writers in progress when they were read. */
export interface ReadRows<R extends Row = Row> {
  readonly rows: readonly R[];
  /** Only these can still make a row appear below a position that was found. Absent if the box is `inCommitOrder`. */
  readonly writers?: Writers;
}

/** The rows that `read` found in the lanes, all at one moment. */
export interface LaneRows extends ReadRows {
  /** The lanes that may have more rows, because a limit was reached. */
  readonly more: ReadonlySet<number>;
  /**
   * Every position up to this one was drawn before that moment. In a lane without `more`, a row that appears at or
   * below it later comes from one of `writers`. 0 if the store cannot tell.
   */
  readonly drawn: number;
  /**
   * Which server answered. Another value than before means that a failover may have lost commits: positions and epochs
   * that were read before may now belong to other messages and owners. Absent if that cannot happen.
   */
  readonly server?: string;
}

/** The rows that `late` found. */
export interface LateRows extends ReadRows<LateRow> {
  /** Whether there may be more rows beyond the last one, because a limit was reached. */
  readonly more: boolean;
}

/** Where to continue reading a lane. */
export interface LaneRead {
  readonly lane: number;
  /** Reads rows of `pending` above this position. Defaults to all. */
  readonly after?: number;
  readonly limit: number;
}

/** A range to search for late commits: a reader may have passed their positions. */
export interface LaneGap {
  readonly lane: number;
  readonly after: number;
  readonly upTo: number;
  /** The positions that the reader has already found there. */
  readonly known: readonly number[];
}

/** A row that appeared below the position up to which its lane had been read. */
export interface LateRow extends Row {
  /** How long ago it was appended. */
  readonly ageMs: number;
}

/** A stored message that is still to be sent. */
export interface Row {
  readonly lane: number;
  readonly position: number;
  readonly message: Message;
  /** Failed attempts so far. */
  readonly attempts: number;
  /** How often the process crashed or the connection was lost while it was in flight, as far as that was counted. */
  readonly crashes: number;
  /**
   * Whether it is in `wait`, because it failed or is behind a failed message of its key. Otherwise it is in `pending`.
   */
  readonly waiting: boolean;
  /**
   * Why its columns do not make a valid message; `message` has what could be read. The row is parked unchanged. Absent
   * for a valid message.
   */
  readonly fault?: PostboxError;
  /**
   * Whether its key is held although the row is in `pending`. Then it must move behind the rows in `wait` instead of
   * being sent.
   */
  readonly held: boolean;
  /**
   * Of a row in `wait`: how often an operator has put it back to its place. A settle only affects a row with the same
   * number.
   */
  readonly turn?: number;
}

/** Options of `Box.settle`. */
export interface SettleOptions {
  /** Keeps sent rows in `done` instead of deleting them. Defaults to false. */
  readonly keep?: boolean;
  /** Gives each row that goes to `wait` a hold of its own, instead of one for its key. Defaults to false. */
  readonly alone?: boolean;
}

/**
 * What happens to a row. In every case, its crashes are forgotten.
 *
 * - `sent`: no verb finds it again. The store may delete it, move it, or only record how far its lane was sent.
 * - `wait`: with `retryInMs`, sets the hold of its key; without, it only queues behind that hold.
 * - `parked`: with `hold`, its key, if it has one, is held until an operator releases it; settling other rows does not
 *   release it.
 * - `pending`: counts a failed attempt and leaves the row in its place, to be read again. Its owner keeps the order, so
 *   no row behind it has to move.
 * - `dropped`: only an entry in the audit remains, one for each reason.
 */
export type Settlement = { readonly row: Row } & (
  | { readonly to: "sent" }
  | { readonly to: "dropped"; readonly reason: string }
  | { readonly to: "wait"; readonly attempts: number; readonly retryInMs?: number; readonly error?: string }
  | { readonly to: "parked"; readonly attempts: number; readonly error: string; readonly hold?: boolean }
  | { readonly to: "pending"; readonly attempts: number; readonly error: string }
);

/** What a call moved from the scheduled rows to the pending rows. */
export interface Promoted {
  readonly count: number;
  readonly nextInMs?: number;
}

/** The result of a settle. */
export interface Settled {
  /** The lanes whose epoch is still current. In all other lanes nothing was changed. */
  readonly standing: ReadonlySet<number>;
  /** The transaction of the settle, if reads may have reported it as a writer in progress. It has appended nothing. */
  readonly writer?: Writers;
}

/** Options of `Box.read`. */
export interface ReadOptions {
  /**
   * The read stops after the row with which it reaches this many bytes, so it always returns a first row. Defaults to
   * 16 MiB.
   */
  readonly maxBytes?: number;
}

/** Options of `Box.promote`, which moves due messages. */
export interface DueOptions extends ReadOptions {
  /**
   * Holds whose rows the reader has already: a key, or for a row with a hold of its own, U+0001 and its id. Defaults to
   * none.
   */
  readonly except?: readonly string[];
}

/**
 * The relay's side of a box. Every write to the rows of a lane carries the lane's epoch and locks it against a
 * take-over, so an owner that has lost the lane changes nothing there. Scheduled messages are in no lane yet.
 *
 * If the signal of a call is aborted, the store ends the statement on the server and gives the connection back. Aborted
 * calls never occupy more than a fixed number of connections, and none keeps waiting in the server. Their outcome is
 * unknown, so every verb can safely be repeated.
 */
export interface Box {
  /**
   * Whether rows appear in the order of their positions, so that none ever appears below one that was found. Then
   * relays look for no late commits, and a total order never waits for one. Defaults to false.
   */
  readonly inCommitOrder?: boolean;
  /** Makes `owner` a member of the box, or renews its lease, for `leaseMs`. It keeps its lanes that long. */
  renew(owner: string, leaseMs: number, order: Order, signal?: AbortSignal): Promise<Membership>;
  /**
   * Takes up to `most` more lanes for a member with a valid lease, from those that have no owner or whose owner's lease
   * has expired. Returns the lanes that it got, each with a higher epoch than before.
   */
  own(owner: string, most: number, options?: OwnOptions, signal?: AbortSignal): Promise<readonly TakenLane[]>;
  /**
   * Gives back at once those of these lanes that it still owns. Without `lanes`, gives all back and ends the
   * membership.
   */
  release(owner: string, lanes?: readonly Lane[], signal?: AbortSignal): Promise<void>;
  /**
   * Returns the first `limit` rows of `pending` of each lane above a position, in order of position. The lanes are read
   * in the given order.
   */
  read(lanes: readonly LaneRead[], options?: ReadOptions, signal?: AbortSignal): Promise<LaneRows>;
  /**
   * Returns the first rows of `wait` of each key whose hold is due: at most `limit` for each lane, those due longest
   * first. They are in order of position.
   */
  due(lanes: readonly Omit<LaneRead, "after">[], options?: DueOptions, signal?: AbortSignal): Promise<readonly Row[]>;
  /**
   * Returns the first `limit` rows of `pending` in these ranges that the reader does not know, in order of position
   * over all lanes.
   */
  late(gaps: readonly LaneGap[], limit: number, options?: ReadOptions, signal?: AbortSignal): Promise<LateRows>;
  /**
   * Appends up to `limit` scheduled messages that are due, the earliest first. Safe to call concurrently. Skips
   * messages that an open transaction has replaced or cancelled. Returns how many it has appended, and in how many ms
   * the next one is due, if there is one.
   */
  promote(limit: number, signal?: AbortSignal): Promise<Promoted>;
  /** Stores the crashes of rows before they are sent. Returns the lanes whose epoch is still current. */
  suspect(lanes: readonly Lane[], rows: readonly Row[], signal?: AbortSignal): Promise<ReadonlySet<number>>;
  /**
   * Stores what happens to rows, each of them named once, in one step. Skips a row whose message no longer has the same
   * id.
   */
  settle(
    lanes: readonly Lane[],
    settlements: readonly Settlement[],
    options?: SettleOptions,
    signal?: AbortSignal,
  ): Promise<Settled>;
}

/** How many bytes a read returns by default. */
export const defaultReadBytes = 16 * 1024 * 1024;

/**
 * The box with the messages that a consumer has not handled yet.
 *
 * @example
 * ```ts
 * const parked = await store.admin.list({ box: inboxOf("billing"), status: "parked" });
 * ```
 */
export function inboxOf(consumer: string): string {
  return `inbox/${consumer}`;
}

/** A message as a consumer received it, with what the inbox remembers of it. */
export interface Arrival {
  readonly consumer: string;
  readonly message: Message;
  /** The id that is remembered: the message's own, unless the consumer defines another. */
  readonly id: string;
  /** A hash of its data. Absent if messages with the same id are not compared. */
  readonly hash?: string;
  /** Whether its data is remembered, too. Defaults to false. */
  readonly storePayload?: boolean;
  readonly origin?: Origin;
  /** The name of the handler. */
  readonly handler?: string;
}

/**
 * `differs`: the id is known, but with other data. `too-old`: its `time` is before the retention window, and its id is
 * not remembered.
 */
export type Remembered = "new" | "duplicate" | "differs" | "too-old";

/** Options of `Inbox.remember`. */
export interface RememberOptions {
  /** How long an id is remembered, from its arrival or from the message's own `time`, whichever is later. */
  readonly retentionMs: number;
  /** How long to wait for another transaction with the same message, before `inbox-busy` is thrown. */
  readonly lockTimeoutMs: number;
}

/**
 * Where to set aside a message that is not handled now: `wait` retries it later, `parked` only when an operator says
 * so.
 */
export type Aside =
  | { readonly to: "wait"; readonly attempts: number; readonly retryInMs: number; readonly error: string }
  | {
      readonly to: "parked";
      readonly attempts: number;
      readonly error: string;
      /**
       * Also parks a message that is known, or was not remembered, so that an operator can look at it. Defaults to
       * false.
       */
      readonly anyway?: boolean;
    };

/**
 * The inbox of all consumers. It accepts each message once per consumer, by its id: either as handled, or into the
 * consumer's box.
 */
export interface Inbox<Tx> {
  /**
   * Remembers within `tx` that the consumer handles this message, unless it is known. `tx` stays usable, except after
   * `inbox-busy`. While another transaction remembers the same message, waits until that has ended.
   */
  remember(tx: Tx, arrival: Arrival, options: RememberOptions): Promise<Remembered>;
  /** Appends the new ones of these messages, all of one consumer, to its box, in their order and in one step. */
  keep(arrivals: readonly Arrival[], options: RememberOptions, signal?: AbortSignal): Promise<readonly Remembered[]>;
  /**
   * Sets a message aside in the box of its consumer, in a transaction of its own, if it is new or `anyway` is set. If
   * its key is held already, the message waits behind the others, and the key stays due when it was.
   */
  setAside(arrival: Arrival, aside: Aside, options: RememberOptions, signal?: AbortSignal): Promise<Remembered>;
  /**
   * Removes a handled row from the box of its consumer within `tx`. Returns false if the row is gone, or if its lane is
   * no longer at `epoch`; then roll back.
   */
  handled(tx: Tx, arrival: Arrival, row: Row, epoch: number): Promise<boolean>;
}

/**
 * Runs one SQL statement with `$n` placeholders in a user's transaction, through the library that opened it. Throws or
 * rejects if the statement fails or the transaction has ended.
 */
export type Executor = (
  text: string,
  params: readonly unknown[],
) => Promise<{ readonly rows: readonly Record<string, unknown>[]; readonly rowCount: number }>;

/**
 * A writing statement with a place for a condition. If a library cannot tell whether the user's transaction is still
 * open, it adds the condition that the statement runs inside of that transaction. A store makes it once, with
 * `guardedStatement`.
 */
export interface GuardedStatement {
  /** The statement without a condition. */
  readonly text: string;
  /**
   * The statement with a condition: a SQL expression that is true or fails. It may use `$n` beyond the statement's own.
   */
  under(condition: string): string;
}

/** An `Executor` that takes reading statements as text, and writing ones with a place for a condition. */
export type TransactionExecutor = (
  statement: string | GuardedStatement,
  params: readonly unknown[],
) => ReturnType<Executor>;

/**
 * Identifies a session of the database: `pid` may be reused later, so it has the start too. `begunAt` is the start of
 * its transaction, if known.
 */
export interface SessionId {
  readonly pid: number;
  readonly startedAt: string;
  readonly begunAt?: string;
}

/** Where a transaction runs, so that it can be ended from outside. */
export interface TransactionSession {
  /** Undefined if the database did not tell. */
  readonly id: SessionId | undefined | Promise<SessionId | undefined>;
  /** Closes the connection at this end. Absent if the library does not expose it. */
  close?(): void;
}

/** The options with which a transaction of a library begins. */
export interface BeginOptions extends TransactionOptions {
  /**
   * Called before BEGIN with a function that closes the connection at this end, if the library exposes it. A connection
   * that does not answer must not block the caller.
   */
  connected?(close: () => void): void;
}

/** The SQL that a database understands. A store and its transaction library must have the same. */
export type Dialect = "postgres" | "mysql" | "sqlite";

/**
 * How a SQL store works inside the transactions of one library (`pg`, Drizzle …). An adapter consists of nothing else.
 */
export interface TransactionLibrary<Tx, D extends Dialect = Dialect> {
  readonly name: string;
  /** The dialect of the library's database. Stores with another dialect reject it. */
  readonly dialect: D;
  /** How many transactions its pool can have open; absent if unknown. */
  readonly maxTransactions?: number;
  /**
   * Returns the executor of an open transaction. Throws `not-a-transaction` for anything else, such as a pool or an
   * ended transaction.
   */
  executor(tx: Tx): TransactionExecutor;
  /**
   * Does what `Store.transaction` does, with that library. If `signal` is aborted at the end, its connection is not
   * used again.
   */
  begin<R>(work: (tx: Tx) => Promise<R>, options?: BeginOptions): Promise<R>;
  /** The session of a transaction that `begin` has just opened. Without it, a transaction cannot be ended by force. */
  session?(tx: Tx): TransactionSession;
  /**
   * Called when the function of a transaction has ended. Returns undefined if no statement is running; that check must
   * be cheap.
   *
   * Otherwise it waits, for a bounded time, until all statements have ended, and then rejects with `not-awaited`. It
   * resolves if they were harmless, such as closing a cursor. If they do not end, it closes the connection. Without
   * this method, statements that are not awaited go unnoticed.
   */
  refuseUnawaited?(tx: Tx): Promise<void> | undefined;
}

/**
 * The transaction of `store` that surrounds the caller, for repositories deep in user code. Throws
 * `transaction-missing` outside of one.
 *
 * @example
 * ```ts
 * async function placeOrder(id: string) {
 *   await currentTransaction(store).query("INSERT INTO orders (id) VALUES ($1)", [id]);
 * }
 * await store.transaction(() => placeOrder("1"));
 * ```
 */
export function currentTransaction<Tx>(store: Store<Tx>): Tx {
  const tx = store.current();
  if (tx !== undefined) return tx;
  throw new PostboxError(
    "transaction-missing",
    `no transaction of ${store.name} is open here; call it inside store.transaction(...) or behind transaction(store)`,
  );
}
