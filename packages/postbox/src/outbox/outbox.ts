import { ConfigError, PostboxError } from "../errors.js";
import type { DataIn, EventDefinition, MessageOptions, Published } from "../event/define-event.js";
import { runtimeWith } from "../internal/runtime.js";
import { unfinishedIn } from "../internal/unfinished.js";
import type { Message } from "../message/message.js";
import { defaultNotifier, type Notifier, notifierRule } from "../notifier.js";
import { callback, checkOptions, flag, text } from "../options.js";
import { type Publisher, type PublisherOptions, publisherTo } from "../publisher/publisher.js";
import type { Store, SyncStore } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import { telling } from "../telemetry/telling.js";
import { createCollection } from "./collection.js";
import { notifyOf } from "./notify.js";

/** Options of `createOutbox`. */
export interface OutboxOptions extends PublisherOptions {
  /**
   * Wakes relays that have the same notifier, so that they need not wait for the next poll, such as `postgresNotifier({
   * pool })`. It works outside of your transaction: no publish waits for it or fails because of it. `false`: none.
   * Defaults to one that wakes the relays of this process with the same store object.
   */
  readonly notifier?: Notifier | false;
  /**
   * Keeps the order of a key even if the transactions of its messages overlap: the second publish waits until the first
   * transaction has ended. Transactions that publish to several keys in several calls, in different orders, may
   * deadlock; the database then fails one (`40P01` in PostgreSQL), to be run again. Defaults to false: messages of a
   * key whose transactions overlap may be sent in either order.
   */
  readonly strictKeyOrder?: boolean;
  /** Receives its events. Defaults to warnings and errors on the console; `silent` turns that off. */
  readonly telemetry?: Telemetry;
}

/** A publisher into one transaction. */
export interface OutboxPublisher extends Publisher {
  /**
   * Removes the scheduled message of this event and schedule key, in the transaction: if that rolls back, it is still
   * scheduled. Resolves to whether there was one. False may also mean too late: a relay has appended it to the outbox,
   * and sends it. If a relay is appending it at this moment, waits for that, so the message is either cancelled or
   * sent, never both.
   */
  cancel(event: { readonly type: string }, scheduleKey: string): Promise<boolean>;
}

/**
 * Publishes into a transaction: its messages are sent if the transaction commits, and never otherwise. `publish`,
 * `publishAll`, `send` and `cancel` use the surrounding transaction of its store, opened by `store.transaction(...)` or
 * by a router, and reject with `transaction-missing` if there is none.
 */
export interface Outbox<Tx = unknown> extends OutboxPublisher {
  readonly store: Store<Tx>;
  /** A publisher into `tx`. It resolves when the messages are written; they are sent after `tx` has committed. */
  in(tx: Tx): OutboxPublisher;
  /**
   * Runs `work` with a publisher that validates, encodes and returns ids, but writes nothing. When `work` has resolved,
   * all messages are written into `tx` in one statement, in the order in which they were published. So positions, and
   * with `strictKeyOrder` the locks of keys, are taken late and together. If `work` rejects, nothing is written. Await
   * every publish: one that is still in progress when `work` ends, or starts later, fails with `not-awaited`.
   */
  collecting<R>(tx: Tx, work: (box: Publisher) => Promise<R>): Promise<R>;
}

/** A publisher into one transaction of a store that answers synchronously, such as SQLite. */
export interface SyncOutboxPublisher extends OutboxPublisher {
  /**
   * Publishes one event in a synchronous transaction. Throws `option-invalid` if the schema, a codec or a middleware is
   * asynchronous.
   */
  publishSync<E extends EventDefinition>(event: E, data: DataIn<E>, options?: MessageOptions): Published;
}

/** An outbox in a store that answers synchronously, such as SQLite. */
export interface SyncOutbox<Tx = unknown> extends Outbox<Tx> {
  readonly store: SyncStore<Tx>;
  in(tx: Tx): SyncOutboxPublisher;
}

/** The name of the box that outboxes write to and relays read from. */
export const outboxBox = "outbox";

/**
 * Makes an outbox in a store. A publish costs one statement in the caller's transaction, and nothing after it: if the
 * process crashes right after COMMIT, the relay finds the messages in the database.
 *
 * @example
 * ```ts
 * const outbox = createOutbox(store, { source: "/orders" });
 * await store.transaction(async (tx) => {
 *   await tx.query("INSERT INTO orders (id, total) VALUES ($1, $2)", ["1", 20]);
 *   await outbox.in(tx).publish(OrderPlaced, { orderId: "1", total: 20 });
 * });
 * ```
 */
export function createOutbox<Tx>(store: SyncStore<Tx>, options: OutboxOptions): SyncOutbox<Tx>;
export function createOutbox<Tx>(store: Store<Tx>, options: OutboxOptions): Outbox<Tx>;
export function createOutbox<Tx>(store: Store<Tx> | SyncStore<Tx>, options: OutboxOptions): SyncOutbox<Tx> {
  const { into: publisherInto, messageNow } = publisherTo("createOutbox", options, {
    telemetry: callback,
    notifier: notifierRule,
    strictKeyOrder: flag,
  });
  const emit = telling(options.telemetry);
  const notify = notifyOf(store, outboxBox, options.notifier ?? defaultNotifier(store), emit);
  const runtime = runtimeWith(options.runtime);
  const appendOptions = { strictKeyOrder: options.strictKeyOrder ?? false };
  const append = async (tx: Tx, messages: readonly Message[]): Promise<void> => {
    await store.append(tx, outboxBox, messages, appendOptions);
    if (runtime.failpoint) await runtime.failpoint("outbox.appended");
    emit({ name: "outbox.appended", box: outboxBox, count: messages.length });
    notify(tx);
  };
  const cancel: (tx: Tx, ...args: Parameters<OutboxPublisher["cancel"]>) => Promise<boolean> = async (
    tx,
    event,
    key,
  ) => {
    checkOptions("cancel", { type: event?.type, scheduleKey: key }, { type: text, scheduleKey: text }, [
      "type",
      "scheduleKey",
    ]);
    return store.cancel(tx, outboxBox, event.type, key);
  };
  const publishSync =
    (tx: Tx): SyncOutboxPublisher["publishSync"] =>
    (event, data, messageOptions) => {
      if (!("appendSync" in store)) throw notSync(store.name);
      const message = messageNow(event, data, messageOptions);
      store.appendSync(tx, outboxBox, [message], appendOptions);
      emit({ name: "outbox.appended", box: outboxBox, count: 1 });
      notify(tx);
      return { id: message.id };
    };
  const into = (tx: Tx): SyncOutboxPublisher => {
    const publisher = publisherInto((messages) => append(tx, messages));
    return {
      publish: (...args) => unfinishedIn(tx, () => publisher.publish(...args)),
      publishAll: (drafts) => unfinishedIn(tx, () => publisher.publishAll(drafts)),
      send: (message) => unfinishedIn(tx, () => publisher.send(message)),
      cancel: (event, scheduleKey) => unfinishedIn(tx, () => cancel(tx, event, scheduleKey)),
      publishSync: publishSync(tx),
    };
  };
  const here = (): OutboxPublisher => {
    const tx = store.current();
    if (tx !== undefined) return into(tx);
    throw new PostboxError(
      "transaction-missing",
      `no transaction of ${store.name} is open here to publish in; ` +
        "call it inside store.transaction(...) or in a handler behind transaction(store), " +
        "or publish into your own with .in(tx)",
    );
  };
  return {
    store: store as SyncStore<Tx>,
    publish: async (event, data, messageOptions) => here().publish(event, data, messageOptions),
    publishAll: async (drafts) => here().publishAll(drafts),
    send: async (message) => here().send(message),
    cancel: async (event, scheduleKey) => here().cancel(event, scheduleKey),
    in: into,
    async collecting(tx, work) {
      const collection = createCollection(publisherInto);
      try {
        const result = await work(collection.publisher);
        const messages = collection.complete();
        if (messages.length > 0) await append(tx, messages);
        return result;
      } finally {
        collection.end();
      }
    },
  };
}

function notSync(storeName: string): ConfigError {
  const text =
    `publishSync needs a store that answers synchronously, such as sqliteStore, and ${storeName} does not; ` +
    "use publish";
  return new ConfigError("option-invalid", text, { path: "publishSync" });
}
