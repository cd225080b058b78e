// For every user: define, publish, relay, handle.

export type { Backoff, ExponentialOptions } from "./backoff.js";
export { constant, exponential } from "./backoff.js";
export type { ErrorCode, ErrorDetails } from "./errors.js";
export { ConfigError, PermanentError, PostboxError, PublishError, TransportDownError } from "./errors.js";
export type { DataIn, DataOut, Draft, EventDefinition, EventOptions, MessageOptions } from "./event/define-event.js";
export { defineEvent } from "./event/define-event.js";
export type { SchemaInput, SchemaOutput, StandardSchema } from "./event/standard-schema.js";
export type { Failpoint } from "./internal/failpoints.js";
// For those who write a store, a transport, a codec or a transaction adapter.
export { failpoints } from "./internal/failpoints.js";
export type { Runtime } from "./internal/runtime.js";
export type { BesideTheEvent } from "./message/cloudevents-json.js";
export {
  fromCloudEventBatchJson,
  fromCloudEventJson,
  toCloudEventBatchJson,
  toCloudEventJson,
} from "./message/cloudevents-json.js";
export type { Codec } from "./message/codec.js";
export type { Extensions, ExtensionValue, Message, MessageInput, MessageLimits } from "./message/message.js";
export { createMessage } from "./message/message.js";
export { correlation } from "./middleware/correlation.js";
export type { DeadlineOptions } from "./middleware/deadline.js";
export { deadline } from "./middleware/deadline.js";
export { inbox } from "./middleware/inbox.js";
export { outboxOutputs } from "./middleware/outbox-outputs.js";
export { publishOutputs } from "./middleware/publish-outputs.js";
export { recover } from "./middleware/recover.js";
export type { RetryOptions } from "./middleware/retry.js";
export { retry } from "./middleware/retry.js";
export { timeout } from "./middleware/timeout.js";
export { transaction } from "./middleware/transaction.js";
export type { Outbox, OutboxOptions } from "./outbox/outbox.js";
export { createOutbox } from "./outbox/outbox.js";
export type { Relay, RelayOptions } from "./outbox/relay.js";
export { createRelay } from "./outbox/relay.js";
export type { DirectPublisherOptions } from "./publisher/create-publisher.js";
export { createPublisher } from "./publisher/create-publisher.js";
export type { PublishMiddleware, PublishNext } from "./publisher/publish-middleware.js";
export type {
  OutgoingMessage,
  PublishDefaults,
  Published,
  Publisher,
  PublisherOptions,
} from "./publisher/publisher.js";
export type {
  BaseContext,
  ForwardAck,
  InTransaction,
  ManualAck,
  Outputs,
  PublishesOutputs,
  WithOutputs,
} from "./router/context.js";
export type { Handler, Handlers, Router, RunsReceiver } from "./router/handlers.js";
export type { Middleware, Next, None } from "./router/middleware.js";
export { defineMiddleware } from "./router/middleware.js";
export type { RouterOptions } from "./router/router.js";
export { createRouter } from "./router/router.js";
export type {
  Box,
  Executor,
  IsolationLevel,
  Lane,
  Row,
  Settlement,
  Store,
  TransactionLibrary,
  TransactionOptions,
} from "./store.js";
export { currentTransaction, laneCount } from "./store.js";
export type { Telemetry, TelemetryEvent } from "./telemetry/events.js";
export type { Delivery, Outcome, Receiver, Sender, Subscription } from "./transport.js";
