// For authors of middleware, of a router or a publisher.

export type { PublishDefaults } from "../publisher/message-maker.js";
export type { PublishMiddleware, PublishNext } from "../publisher/publish-middleware.js";
export type {
  BaseContext,
  ForwardAck,
  InTransaction,
  ManualAck,
  Outputs,
  PublishesOutputs,
  WithOutputs,
  WithoutOutputs,
} from "../router/context.js";
export type { Keeper, KeeperOptions, Verdict } from "../router/keeper.js";
export { defineMiddleware, type Middleware, type Next, type None } from "../router/middleware.js";
