import { ConfigError } from "../errors.js";
import type { Receiver } from "../transport.js";
import type { AnyMiddleware } from "./middleware.js";

/** Refuses a receiver whose broker lacks what this router needs, before anything runs. */
export function checkAbilities(consumer: string, receiver: Receiver, middleware: readonly AnyMiddleware[]): void {
  const inbox = middleware.find(({ keeper }) => keeper !== undefined);
  const { name, settles, setsAside = false, redelivery } = receiver;
  if (settles === "in-order" && !setsAside && inbox === undefined) {
    throw new ConfigError(
      "middleware-order",
      `router ${consumer}: the broker of ${name} cannot retry or park a single message, so a failed one needs an ` +
        "inbox to go to; " +
        "add .use(transaction(store)).use(inbox(store)) before .on(...)",
    );
  }
  if (redelivery === "unknown" && inbox?.storesFirst !== true) {
    throw new ConfigError(
      "middleware-order",
      `router ${consumer}: the broker of ${name} does not tell redelivered messages, so one that crashes its ` +
        "process would do so forever; " +
        "add .use(transaction(store)).use(durableInbox(store)) before .on(...), which stores messages first",
    );
  }
}
