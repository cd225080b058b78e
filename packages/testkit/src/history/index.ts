export { checkHistory, type Rule, type Violation } from "./check-history.js";
export type {
  BoxPromise,
  ConsumerPromise,
  HistoryEvent,
  Promises,
  RestedBox,
  Sighting,
} from "./history.js";
