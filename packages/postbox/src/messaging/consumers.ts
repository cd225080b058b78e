import { ConfigError } from "../errors.js";
import { correlation } from "../middleware/correlation.js";
import { durableInbox } from "../middleware/durable-inbox.js";
import { inbox } from "../middleware/inbox.js";
import { outboxOutputs } from "../middleware/outbox-outputs.js";
import { publishOutputs } from "../middleware/publish-outputs.js";
import { transaction } from "../middleware/transaction.js";
import { given } from "../options.js";
import type { Outbox } from "../outbox/outbox.js";
import type { Publisher } from "../publisher/publisher.js";
import { createRouter } from "../router/create-router.js";
import type { AnyMiddleware } from "../router/middleware.js";
import type { RunsReceiver } from "../router/router.js";
import type { Receiver } from "../transport.js";
import type { ConsumerOptions } from "./messaging.js";
import { checkConsumer, type MessagingOptions, requireStore } from "./messaging-options.js";
import { withoutOutputs } from "./without-outputs.js";

/** The consumers of one `Messaging`. */
export interface Consumers {
  /** The routers, by the name of their consumer. */
  readonly routers: ReadonlyMap<string, RunsReceiver>;
  /** Makes the router of a consumer, with the middleware that `outbox` and `inbox` call for. */
  create(name: string, own: ConsumerOptions): RunsReceiver;
  /** After this, `create` throws `already-started`. */
  seal(): void;
  /** The receiver of the consumer with this name. */
  receiverOf(name: string): Receiver;
}

export function createConsumers(
  options: MessagingOptions,
  { publisher, outbox }: { readonly publisher: Publisher; readonly outbox?: Outbox<unknown> },
): Consumers {
  const { service, store, receiver, telemetry, codecs, maxAttempts, runtime } = options;
  const routers = new Map<string, RunsReceiver>();
  let sealed = false;

  /** The middleware of a consumer, from the outermost to the innermost. */
  function* middleware(name: string, own: ConsumerOptions): Generator<AnyMiddleware> {
    const mode = own.inbox ?? options.inbox ?? false;
    if (outbox === undefined && !mode) yield publishOutputs(publisher);
    if (store !== undefined) yield transaction(store, given({ isolation: own.isolation }));
    if (mode) {
      const make = mode === "durable" ? durableInbox : inbox;
      yield make(requireStore(`consumer ${name}: the inbox`, store), given(options.inboxOptions, own.inboxOptions));
    }
    if (outbox !== undefined) yield outboxOutputs(outbox);
    else if (mode) yield withoutOutputs();
  }

  function checkNew(name: string): void {
    if (routers.has(name)) {
      const text =
        `there is a consumer ${name} already; register more events with its .on(...), ` +
        "or give this one another name";
      throw new ConfigError("option-invalid", `createMessaging: ${text}`, { path: "name" });
    }
    if (sealed) {
      throw new ConfigError("already-started", `${service} has run already; make its consumer ${name} before it does`);
    }
  }

  return {
    routers,
    create(name: string, own: ConsumerOptions): RunsReceiver {
      checkNew(name);
      checkConsumer(name, own);
      const { inbox: _inbox, inboxOptions, isolation, outside, ...routerOptions } = own;
      const shared = { maxAttempts, codecs, telemetry, runtime };
      const router = createRouter(name, given(given(shared, options.routerOptions), routerOptions));
      // `use` returns the same router, although its type differs.
      const untyped = router as unknown as { use(middleware: AnyMiddleware): unknown };
      untyped.use(correlation());
      outside?.(router);
      for (const each of middleware(name, own)) untyped.use(each);
      routers.set(name, router);
      return router;
    },
    seal() {
      sealed = true;
    },
    receiverOf(name: string): Receiver {
      if (receiver === undefined) {
        throw new ConfigError(
          "option-invalid",
          `consumer ${name} has nothing to run on; give createMessaging 'receiver', such as broker.receiver(), or ` +
            "run it with one",
          { path: "receiver" },
        );
      }
      return typeof receiver === "function" ? receiver(name) : receiver;
    },
  };
}
