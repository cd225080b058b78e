export { NotSettledError, type UnhandledMessage } from "./not-settled-error.js";
export { type PublishedBy, publishedBy, type ReadPublished } from "./published.js";
export type { SettledOptions } from "./settle.js";
export type { TestClock } from "./test-clock.js";
export {
  type InMemoryMessaging,
  type TestMessaging,
  type TestMessagingOptions,
  testMessaging,
} from "./test-messaging.js";
