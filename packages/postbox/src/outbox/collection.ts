import { PostboxError } from "../errors.js";
import type { Message } from "../message/message.js";
import type { PublishNext } from "../publisher/publish-middleware.js";
import type { Publisher } from "../publisher/publisher.js";

/** Messages that are published now and written later, together. */
export interface Collection {
  readonly publisher: Publisher;
  /** Accepts no more messages. */
  end(): void;
  /**
   * Ends it and returns all messages in their order. Throws if a publish is still in progress: its message would be
   * missing.
   */
  complete(): readonly Message[];
}

export function createCollection(publisherInto: (sink: PublishNext) => Publisher): Collection {
  const collected: Message[] = [];
  let underWay = 0;
  let ended = false;
  const inner = publisherInto(async (messages) => {
    if (ended) throw tooLate("a publish came after the callback of collecting() had ended");
    for (const message of messages) collected.push(message);
  });
  const end = () => {
    ended = true;
  };
  const counted =
    <Args extends readonly unknown[], R>(publish: (...args: Args) => Promise<R>) =>
    async (...args: Args): Promise<R> => {
      underWay++;
      try {
        return await publish(...args);
      } finally {
        underWay--;
      }
    };
  return {
    publisher: {
      publish: counted(inner.publish) as Publisher["publish"],
      publishAll: counted(inner.publishAll),
      send: counted(inner.send),
    },
    end,
    complete() {
      end();
      if (underWay > 0) throw tooLate(`the callback of collecting() ended with ${underWay} publishes under way`);
      return collected;
    },
  };
}

function tooLate(what: string): PostboxError {
  return new PostboxError(
    "not-awaited",
    `${what}; await every publish in the callback, or its message would be missing in the transaction`,
  );
}
