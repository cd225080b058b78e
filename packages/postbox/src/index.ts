// biome-ignore-all assist/source/organizeImports: grouped by who needs what.

// For every user: define, publish, relay, handle.
export type {
  Admin,
  ArchivedMessage,
  AuditEntry,
  AuditOptions,
  BoxOption,
  BoxStats,
  Changed,
  ChangeOptions,
  DiscardSelection,
  DryRun,
  DryRunOptions,
  Failure,
  ListOptions,
  MessageFilter,
  MessagePage,
  Operator,
  Purged,
  PurgeOptions,
  ReplayOptions,
  RetrySelection,
  Selection,
  StatsOptions,
  Status,
  StatusStats,
  StoredMessage,
  StoredMessageDetails,
} from "./admin.js";
export { type Backoff, constant, exponential, type ExponentialOptions } from "./backoff.js";
export {
  ConfigError,
  type ErrorCode,
  type ErrorDetails,
  PermanentError,
  PostboxError,
  PublishError,
  TransportDownError,
} from "./errors.js";
export type { AsyncApiDocument, AsyncApiOptions, AsyncApiPayload } from "./event/async-api.js";
export {
  type Catalog,
  type CatalogEntry,
  type CatalogPublisher,
  defineCatalog,
  type JsonSchemaDocumentOptions,
  type TakesEvents,
} from "./event/catalog.js";
export { dataOf } from "./event/data-of.js";
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
} from "./event/define-event.js";
export type { JsonSchemaOptions } from "./event/json-schema.js";
export { type OlderType, type UpcastFromOptions, type Upcaster, upcastFrom } from "./event/upcast.js";
export { withUpcast } from "./event/with-upcast.js";
export type { Health, HealthOptions, HealthProblem, OrderBlocker, VacuumHolder } from "./health.js";
export type { Extensions, ExtensionValue, Message } from "./message/message.js";
export { createOutbox, type Outbox, type OutboxOptions, type OutboxPublisher } from "./outbox/outbox.js";
export { createRelay, type Relay } from "./relay/relay.js";
export type { RelayOptions } from "./relay/relay-options.js";
export { outboxReceiver, type OutboxReceiverOptions } from "./relay/outbox-receiver.js";
export { createPublisher, type DirectPublisherOptions } from "./publisher/create-publisher.js";
export type { PublishMiddleware, PublishNext } from "./publisher/publish-middleware.js";
export type {
  OutgoingMessage,
  PublishDefaults,
  Publisher,
  PublisherOptions,
} from "./publisher/publisher.js";
export { createRouter, type RouterOptions } from "./router/create-router.js";
export type { Handler, Handlers, Registration, Router, RunsReceiver } from "./router/router.js";
export { createMessaging } from "./messaging/create-messaging.js";
export type { ConsumerOptions, InboxMode, Messaging } from "./messaging/messaging.js";
export type { MessagingOptions } from "./messaging/messaging-options.js";
export { type EnvMessagingOptions, messagingOptionsFromEnv } from "./messaging/messaging-options-from-env.js";
export { correlation } from "./middleware/correlation.js";
export { deadline, type DeadlineOptions } from "./middleware/deadline.js";
export type { DurableInboxOptions, InboxOptions } from "./inbox/inbox-options.js";
export { durableInbox } from "./middleware/durable-inbox.js";
export { inbox } from "./middleware/inbox.js";
export { outboxOutputs } from "./middleware/outbox-outputs.js";
export { publishOutputs } from "./middleware/publish-outputs.js";
export { recover } from "./middleware/recover.js";
export { retry, type RetryOptions } from "./middleware/retry.js";
export { timeout } from "./middleware/timeout.js";
export { transaction } from "./middleware/transaction.js";
export { inProcessNotifier, type NotificationListener, type Notifier } from "./notifier.js";
export { currentTransaction, inboxOf, type Store, type IsolationLevel, type TransactionOptions } from "./store.js";
export type { Telemetry, TelemetryEvent, TransportEnd } from "./telemetry/events.js";
export { silent } from "./telemetry/console.js";
export { type FieldLogger, type LogOptions, logTo, type TextLogger } from "./telemetry/log.js";

// For those who write middleware.
export type {
  BaseContext,
  ForwardAck,
  InTransaction,
  ManualAck,
  Outputs,
  PublishesOutputs,
  WithOutputs,
  WithoutOutputs,
} from "./router/context.js";
export type { Keeper, KeeperOptions, Verdict } from "./router/keeper.js";
export { defineMiddleware, type Middleware, type Next, type None } from "./router/middleware.js";

// For those who write a store, a transport, a codec or a transaction adapter.
export type {
  JsonSchema,
  JsonSchemaSource,
  JsonSchemaTarget,
  JsonSchemaWanted,
  SchemaInput,
  SchemaOutput,
  StandardSchema,
} from "./event/standard-schema.js";
export { type Failpoint, failpoints } from "./internal/failpoints.js";
export { laneCount } from "./internal/lane.js";
export type { Runtime } from "./internal/runtime.js";
export {
  type BesideTheEvent,
  fromCloudEventBatchJson,
  fromCloudEventJson,
  toCloudEventBatchJson,
  toCloudEventJson,
} from "./message/cloudevents-json.js";
export type { Codec } from "./message/codec.js";
export { createMessage, type MessageInput, type MessageLimits } from "./message/message.js";
export type {
  AppendOptions,
  Arrival,
  Aside,
  Box,
  DueOptions,
  Executor,
  Inbox,
  Lane,
  LaneGap,
  LaneRead,
  LaneRows,
  LateRow,
  LateRows,
  Member,
  Membership,
  Order,
  OwnOptions,
  ReadOptions,
  ReadRows,
  Remembered,
  RememberOptions,
  Row,
  ScheduleState,
  Settled,
  Settlement,
  SessionId,
  SettleOptions,
  TakenLane,
  TickClaim,
  TransactionLibrary,
  TransactionSession,
  WriterRange,
} from "./store.js";
export type { Delivery, Kept, Origin, Outcome, Receiver, Sender, Subscription, TransportHealth } from "./transport.js";
