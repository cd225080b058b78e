import { type Codec, createCodecs } from "../message/codec.js";
import type { Message } from "../message/message.js";
import type { DataOut, EventDefinition } from "./define-event.js";

/**
 * The data of a message, decoded and validated as the handler of its event gets them. Rejects with
 * `content-type-unknown` or `data-invalid`. `codecs` are those of the publisher, beside the event's own and the
 * built-in ones.
 */
export async function dataOf<E extends EventDefinition>(
  event: E,
  message: Pick<Message, "data" | "datacontenttype">,
  codecs: readonly Codec[] = [],
): Promise<DataOut<E>> {
  const decoded = createCodecs(codecs).preferring(event.codecs).decode(message.datacontenttype, message.data);
  return (await event.validate(decoded)) as DataOut<E>;
}
