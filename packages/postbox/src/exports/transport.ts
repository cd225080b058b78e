// biome-ignore-all assist/source/organizeImports: grouped by what an author does with it.

// For authors of a transport. First the broker seam.
export type {
  Delivery,
  Kept,
  Origin,
  Outcome,
  Receiver,
  Sender,
  Subscription,
  TransportHealth,
} from "../transport.js";
export type { TransportEnd } from "../telemetry/events.js";

// What every transport does in the same way.
export { settleOnce } from "../settle-once.js";
export { type Attempt, stayConnected, type StayConnectedOptions } from "../transports/stay-connected.js";
export { type ConnectionWatch, watchConnection, worst } from "../transports/connection-watch.js";
export { Room, type RoomLimits } from "../transports/room.js";
export { type Backoff, constant, exponential } from "../backoff.js";
export { createWatermark, type Watermark } from "../transports/watermark.js";
export { type OnUnroutable, onUnroutableRule, type Unroutable, unroutableOutcome } from "../transports/unroutable.js";
export { ConfigError, type ErrorDetails, PostboxError, TransportDownError } from "../errors.js";
export { checkOptions, type OptionRule } from "../options.js";
export { type Runtime, runtimeWith } from "../internal/runtime.js";

// Messages on the wire.
export {
  type BesideTheEvent,
  fromCloudEventBatchJson,
  fromCloudEventJson,
  toCloudEventBatchJson,
  toCloudEventJson,
} from "../message/cloudevents-json.js";
export { createMessage, type ExtensionValue, type MessageInput, type MessageLimits } from "../message/message.js";
