import { PermanentError } from "../errors.js";
import type { EventDefinition } from "../event/define-event.js";
import type { Codecs } from "../message/codec.js";
import type { BaseContext, Outputs } from "./context.js";
import type { AnyMiddleware } from "./middleware.js";

/** A handler without its types, as the router keeps it. */
export type UntypedHandler = (data: unknown, context: BaseContext) => unknown;

/**
 * How the handling of a message ended well: its handler returned, or some middleware ended it without (a duplicate, an
 * expired message) or in spite of it (a failure that was recovered from).
 */
export type Handled = "by-handler" | "by-middleware";

/** The handling of one message. How it ended for the message may be known before all that was begun for it has ended. */
interface Handling {
  readonly result: Promise<Handled>;
  /** Resolves when nothing runs any more, not even what a middleware gave up on: a handler that is deaf to its signal. */
  ended(): Promise<void>;
}

/** Takes one message through decoding, validation, all middleware and its handler. */
export type Handle = (context: BaseContext) => Handling;

export function createHandle(
  event: EventDefinition,
  handler: UntypedHandler,
  middleware: readonly AnyMiddleware[],
  codecs: Codecs,
): Handle {
  const handle = async (context: BaseContext, begun: Promise<unknown>[]): Promise<Handled> => {
    // Before any middleware: data that can never be read should not open a transaction first.
    const decoded = codecs.decode(context.message.datacontenttype, context.message.data);
    const data = await event.validate(decoded);
    let handled: Handled = "by-middleware";
    const innermost = async (inner: BaseContext): Promise<Outputs> => {
      handled = "by-middleware";
      const outputs = outputsOf(await handler(data, inner), event, inner);
      handled = "by-handler";
      if (inner.runtime.failpoint) await inner.runtime.failpoint("handler.returned");
      return outputs;
    };
    const left = await compose(middleware, innermost, begun)(context);
    if (left.length > 0) throw unpublished(event);
    return handled;
  };
  return (context) => {
    const begun: Promise<unknown>[] = [];
    const result = handle(context, begun);
    begun.push(result);
    return {
      result,
      async ended() {
        // One by one, since what runs may begin more.
        for (const running of begun) await Promise.allSettled([running]);
      },
    };
  };
}

type Step = (context: BaseContext) => Promise<Outputs>;

/** By composition, not by an index: `next` may be called again (a retry) and runs everything inside anew. */
function compose(middleware: readonly AnyMiddleware[], innermost: Step, begun: Promise<unknown>[]): Step {
  return middleware.reduceRight<Step>(
    (inside, current) => (context) =>
      current.run(context, (added?: object) => {
        const running = inside(added === undefined ? context : { ...context, ...added });
        begun.push(running);
        return running;
      }),
    innermost,
  );
}

function outputsOf(returned: unknown, event: EventDefinition, context: BaseContext): Outputs {
  if (returned === undefined || returned === null) return [];
  if (!Array.isArray(returned)) {
    throw new PermanentError(
      `the handler of ${event.type} returned something of type ${typeof returned}; return drafts in an array, or nothing`,
      { code: "outputs-unpublished" },
    );
  }
  // Here and not further out, so that a transaction around the handler rolls back.
  if (returned.length > 0 && !("outputs" in context)) throw unpublished(event);
  return returned;
}

function unpublished(event: EventDefinition): PermanentError {
  return new PermanentError(
    `handling ${event.type} returned messages that nobody publishes; ` +
      ".use(outboxOutputs(outbox)) or .use(publishOutputs(publisher)) before .on(...)",
    { code: "outputs-unpublished" },
  );
}
