import { type Codec, createCodecs } from "../message/codec.js";
import type { Message } from "../message/message.js";
import type { DataOut, EventDefinition } from "./define-event.js";

/**
 * The data of a message, decoded and validated as for the handler of its event. Rejects with `content-type-unknown` or
 * `data-invalid`. Pass the publisher's `codecs`; those of the event and the built-in ones are known.
 *
 * @example
 * ```ts
 * const order = await dataOf(OrderPlaced, message);
 * console.log(order.orderId);
 * ```
 */
export async function dataOf<E extends EventDefinition>(
  event: E,
  message: Pick<Message, "data" | "datacontenttype">,
  codecs: readonly Codec[] = [],
): Promise<DataOut<E>> {
  const decoded = createCodecs(codecs).preferring(event.codecs).decode(message.datacontenttype, message.data);
  return (await event.validate(decoded)) as DataOut<E>;
}
