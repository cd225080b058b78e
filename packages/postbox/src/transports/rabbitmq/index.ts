export type { OnUnroutable, Unroutable } from "../unroutable.js";
export type { ContentMode } from "./amqp-message.js";
export type { RabbitmqConnectionOptions, RabbitmqCredentials } from "./connection.js";
export {
  type ListParkedOptions,
  type RabbitmqParked,
  type RabbitmqParkingLot,
  type RabbitmqParkingLotOptions,
  type ReplayParkedOptions,
  rabbitmqParkingLot,
} from "./parking-lot.js";
export { type RabbitmqReceiver, type RabbitmqReceiverOptions, rabbitmqReceiver } from "./rabbitmq-receiver.js";
export { type RabbitmqSender, type RabbitmqSenderOptions, rabbitmqSender } from "./rabbitmq-sender.js";
export type { Route } from "./route.js";
export type { Topology } from "./topology.js";
