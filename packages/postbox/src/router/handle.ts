import { PermanentError } from "../errors.js";
import type { EventDefinition } from "../event/define-event.js";
import type { OlderType } from "../event/upcast.js";
import { refuseUnfinished } from "../internal/unfinished.js";
import type { Codecs } from "../message/codec.js";
import type { BaseContext, InTransaction, Outputs, WithoutOutputs } from "./context.js";
import { thrownByHandler } from "./is-transient.js";
import type { AnyMiddleware, Next } from "./middleware.js";

/** A handler without its types. */
export type UntypedHandler = (data: unknown, context: BaseContext) => unknown;

/**
 * How handling succeeded: the handler returned, or a middleware ended it without the handler (a duplicate, an expired
 * message) or despite its failure (`recover`).
 */
export type Handled = "by-handler" | "by-middleware";

/** Work in progress. Its result may settle before the work ends, since a middleware can give up on what is inside. */
export interface Running<R> {
  readonly result: Promise<R>;
  /**
   * Resolves when none of the work runs any more, including handlers that ignore their signal. Never rejects. Undefined
   * if the work has ended already: this is asked for every message, and a promise costs more than the question.
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
    // Checked here and at the end of the transaction. By then the statement may have finished; until then, it may block
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
      // Before any middleware, so that data which cannot be decoded opens no transaction.
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

/** The handling of one message. */
interface Handling {
  readonly data: unknown;
  handled: Handled;
}

type Step = (context: BaseContext, handling: Handling) => Running<Outputs>;

/** Composed rather than indexed: `next` may be called again, by `retry`, and runs everything inside anew. */
function compose(middleware: readonly AnyMiddleware[], innermost: Step): Step {
  return middleware.reduceRight<Step>(
    (inside, current, index) => (context, handling) => {
      let before: Running<Outputs> | undefined;
      const start = (added?: object): Promise<Outputs> => {
        before = inside(added === undefined ? context : { ...context, ...added }, handling);
        return before.result;
      };
      const next = (added?: object): Promise<Outputs> => {
        // The previous call may have been given up on and still run. A message is never handled twice at once.
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

/** Turns the result into a promise, since untyped handlers may return or throw anything. */
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

/** Has ended when it has settled and everything that it started `inside` has ended. */
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
  // Thrown inside of the transaction, so that the transaction rolls back.
  if (returned.length > 0 && !("outputs" in context)) throw unpublished(event, context);
  return returned;
}

function unpublished(event: EventDefinition, context: BaseContext & Partial<WithoutOutputs>): PermanentError {
  const advice =
    context.unpublished ?? ".use(outboxOutputs(outbox)) or .use(publishOutputs(publisher)) before .on(...)";
  return new PermanentError(`handling ${event.type} returned messages that are not published; ${advice}`, {
    code: "outputs-unpublished",
  });
}
