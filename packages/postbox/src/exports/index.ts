// biome-ignore-all assist/source/organizeImports: grouped by what a user does.

// Define events.
export { dataOf } from "../event/data-of.js";
export {
  type DataIn,
  type DataOut,
  defineEvent,
  type Draft,
  type EventDefinition,
  type EventDocs,
  type EventOptions,
  type MessageOptions,
  type Published,
} from "../event/define-event.js";
export { type UpcastFromOptions, type Upcaster, upcastFrom } from "../event/upcast.js";
export { withUpcast } from "../event/with-upcast.js";
export type { StandardSchema } from "../event/standard-schema.js";
export type { Codec } from "../message/codec.js";
export type { Extensions, Message } from "../message/message.js";

// Publish them.
export {
  createOutbox,
  type Outbox,
  type OutboxOptions,
  type OutboxPublisher,
} from "../outbox/outbox.js";
export { createPublisher, type DirectPublisherOptions } from "../publisher/create-publisher.js";
export type { OutgoingMessage } from "../publisher/message-maker.js";
export type { Publisher, PublisherOptions } from "../publisher/publisher.js";
export {
  currentTransaction,
  inboxOf,
  type IsolationLevel,
  type Order,
  type Store,
  type TransactionOptions,
} from "../store.js";

// Relay them.
export { outboxReceiver, type OutboxReceiverOptions } from "../relay/outbox-receiver.js";
export { createRelay, type Relay } from "../relay/relay.js";
export type { RelayOptions } from "../relay/relay-options.js";
export { inProcessNotifier, type Notifier } from "../notifier.js";
export type { Kept, Origin, Receiver, Sender } from "../transport.js";

// Handle them.
export { createRouter } from "../router/create-router.js";
export type { RouterOptions } from "../router/router-options.js";
export type { BaseContext, Outputs } from "../router/context.js";
export type { SlowHandler } from "../router/places.js";
export type { Handler, Handlers, Registration, Router, RunsReceiver } from "../router/router.js";
export type { DurableInboxOptions, InboxOptions } from "../inbox/inbox-options.js";
export { correlation } from "../middleware/correlation.js";
export { deadline, type DeadlineOptions } from "../middleware/deadline.js";
export { durableInbox } from "../middleware/durable-inbox.js";
export { inbox } from "../middleware/inbox.js";
export { outboxOutputs } from "../middleware/outbox-outputs.js";
export { publishOutputs } from "../middleware/publish-outputs.js";
export { recover } from "../middleware/recover.js";
export { retry, type RetryOptions } from "../middleware/retry.js";
export { timeout } from "../middleware/timeout.js";
export { transaction } from "../middleware/transaction.js";

// All of it at once.
export { createMessaging } from "../messaging/create-messaging.js";
export type { ConsumerOptions, InboxMode, Messaging } from "../messaging/messaging.js";
export type { MessagingOptions } from "../messaging/messaging-options.js";
export { type EnvMessagingOptions, messagingOptionsFromEnv } from "../messaging/messaging-options-from-env.js";

// What goes wrong, and what happens.
export { type Backoff, constant, exponential } from "../backoff.js";
export { ConfigError, type ErrorCode, PermanentError, PostboxError, PublishError } from "../errors.js";
export type { Admin } from "../admin.js";
export type { Health, HealthProblem } from "../health.js";
export { silent } from "../telemetry/console.js";
export type { Telemetry, TelemetryEvent } from "../telemetry/events.js";
export { type LogOptions, logTo, type TextLogger } from "../telemetry/log.js";
