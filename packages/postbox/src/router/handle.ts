import { PermanentError } from "../errors.js";
import type { EventDefinition } from "../event/define-event.js";
import type { OlderType } from "../event/upcast.js";
import { refuseUnfinished } from "../internal/unfinished.js";
import type { Codecs } from "../message/codec.js";
import type { BaseContext, InTransaction, Outputs, WithoutOutputs } from "./context.js";
import { thrownByHandler } from "./is-transient.js";
import type { AnyMiddleware, Next } from "./middleware.js";

/** A handler without its types, as the router keeps it. */
export type UntypedHandler = (data: unknown, context: BaseContext) => unknown;

/**
 * How the handling of a message ended well: its handler returned, or some middleware ended it without (a duplicate, an
 * expired message) or in spite of it (a failure that was recovered from).
 */
export type Handled = "by-handler" | "by-middleware";

/**
 * Something under way. Its result may be known before it has ended: a middleware can give up on what is inside of it.
 */
export interface Running<R> {
  readonly result: Promise<R>;
  /**
   * Resolves when nothing of it runs any more, not even a handler that is deaf to its signal. Never rejects. Nothing,
   * where that is so already: this is asked for every message, and a promise costs more than the question.
   */
  ended(): Promise<void> | undefined;
}

/** Takes one message through decoding, upcasting, validation, all middleware and its handler. */
export type Handle = (context: Omit<BaseContext, "handler">) => Running<Handled>;

export function createHandle(
  event: EventDefinition,
  handler: UntypedHandler,
  middleware: readonly AnyMiddleware[],
  codecs: Codecs,
  older?: OlderType,
): Handle {
  const name = handler.name || event.type;
  const eventCodecs = codecs.preferring((older ?? event).codecs);
  const read = older?.["~read"] ?? event["~validate"];
  const innermost = async (context: BaseContext, handling: Handling): Promise<Outputs> => {
    handling.handled = "by-middleware";
    const outputs = outputsOf(await returnedBy(handler, handling.data, context), event, context);
    // Here as well as at the end of its transaction: by then it may have finished. Until then, it may block the
    // statements of other middleware.
    const unfinished = refuseUnfinished((context as Partial<InTransaction<unknown>>).tx);
    if (unfinished !== undefined) await unfinished;
    handling.handled = "by-handler";
    if (context.runtime.failpoint) await context.runtime.failpoint("handler.returned");
    return outputs;
  };
  const chain = compose(middleware, (context, handling) => running(innermost(context, handling)));
  return (given) => {
    const context: BaseContext = { ...given, handler: name };
    let inside: Running<Outputs> | undefined;
    const handle = async (): Promise<Handled> => {
      // Before any middleware: data that can never be read should not open a transaction first.
      const decoded = eventCodecs.decode(context.message.datacontenttype, context.message.data);
      const validated = read(decoded);
      const data = validated instanceof Promise ? await validated : validated;
      const handling: Handling = { data, handled: "by-middleware" };
      inside = chain(context, handling);
      const left = await inside.result;
      if (left.length > 0) throw unpublished(event, context);
      return handling.handled;
    };
    return running(handle(), () => inside);
  };
}

async function returnedBy(handler: UntypedHandler, data: unknown, context: BaseContext): Promise<unknown> {
  try {
    return await handler(data, context);
  } catch (thrown) {
    throw thrownByHandler(thrown);
  }
}

/** One message on its way through everything. */
interface Handling {
  readonly data: unknown;
  handled: Handled;
}

type Step = (context: BaseContext, handling: Handling) => Running<Outputs>;

/** By composition, not by an index: `next` may be called again (a retry) and runs everything inside anew. */
function compose(middleware: readonly AnyMiddleware[], innermost: Step): Step {
  return middleware.reduceRight<Step>(
    (inside, current, index) => (context, handling) => {
      let before: Running<Outputs> | undefined;
      const start = (added?: object): Promise<Outputs> => {
        before = inside(added === undefined ? context : { ...context, ...added }, handling);
        return before.result;
      };
      const next = (added?: object): Promise<Outputs> => {
        // What the call before was given up on, and still runs: a message is never handled twice at once.
        const ending = before?.ended();
        return ending === undefined ? start(added) : ending.then(() => start(added));
      };
      return running(
        started(current, context, next, middleware[index + 1]),
        current.endsInside ? nothing : () => before,
      );
    },
    innermost,
  );
}

/** Whatever it does, as a promise: where nobody compiles, it may do anything. */
function started(
  middleware: AnyMiddleware,
  context: BaseContext,
  next: Next<object>,
  inside: AnyMiddleware | undefined,
): Promise<Outputs> {
  try {
    return Promise.resolve(middleware.run(context, next, inside));
  } catch (error) {
    return Promise.reject(error);
  }
}

const nothing = () => undefined;

/** What has ended when it is settled, and then what it has started `inside` has ended. */
function running<R>(result: Promise<R>, inside: () => Running<unknown> | undefined = nothing): Running<R> {
  let over = false;
  const settle = () => {
    over = true;
  };
  const settled = result.then(settle, settle);
  const ended = async () => {
    await settled;
    await inside()?.ended();
  };
  return { result, ended: () => (over ? inside()?.ended() : ended()) };
}

function outputsOf(returned: unknown, event: EventDefinition, context: BaseContext): Outputs {
  if (returned === undefined || returned === null) return [];
  if (!Array.isArray(returned)) {
    throw new PermanentError(
      `the handler of ${event.type} returned something of type ${typeof returned}; return drafts in an array, or ` +
        "nothing",
      { code: "outputs-unpublished" },
    );
  }
  // Here and not further out, so that a transaction around the handler rolls back.
  if (returned.length > 0 && !("outputs" in context)) throw unpublished(event, context);
  return returned;
}

function unpublished(event: EventDefinition, context: BaseContext & Partial<WithoutOutputs>): PermanentError {
  const advice =
    context.unpublished ?? ".use(outboxOutputs(outbox)) or .use(publishOutputs(publisher)) before .on(...)";
  return new PermanentError(`handling ${event.type} returned messages that nobody publishes; ${advice}`, {
    code: "outputs-unpublished",
  });
}
