import type { ChannelModel, ConsumeMessage } from "amqplib";
import { PermanentError, PostboxError } from "../../errors.js";
import { storedError } from "../../internal/stored-error.js";
import type { Confirmation } from "./confirms.js";
import { attemptHeader, copyOf, idOf, reasonHeader, withoutOthers, withPlainHeaders } from "./copy.js";
import type { Links } from "./link.js";
import {
  parkedQueue,
  prepareQueue,
  prepareWait,
  type QueueOptions,
  type Topology,
  type WaitQueue,
  waitQueue,
} from "./topology.js";

/**
 * Publishes copies of deliveries to the other queues of a consumer. Each call resolves when the broker has confirmed
 * the copy.
 */
export interface Aside {
  /** Rejects with a `PermanentError` if the client cannot write an equivalent copy. */
  wait(raw: ConsumeMessage, delayMs: number, nextAttempt: number): Promise<void>;
  /** Without `attempt`, an unreadable message keeps the attempt in its header. */
  park(raw: ConsumeMessage, reason: Error, attempt?: number): Promise<void>;
}

/**
 * Publishes over `links`, and makes queues over `connection`, which is the consumer's: a broker that is short of memory
 * stops reading from publishing connections, and acknowledgements must still reach it.
 */
export function createAside(
  connection: ChannelModel,
  links: Pick<Links, "get">,
  options: QueueOptions,
  topology: Topology,
): Aside {
  const waits = new Map<string, Promise<void>>();

  async function publish(raw: ConsumeMessage, to: string, headers: Record<string, unknown>): Promise<Confirmation> {
    const { publishing } = await links.get();
    return new Promise((resolve, reject) => {
      try {
        publishing.publish("", to, { content: raw.content, properties: copyOf(raw, headers) }, resolve);
      } catch (error) {
        // The client knows that it is closed, or closing, before it emits the event.
        if ((error as Error).name === "IllegalOperationError") resolve("lost");
        else reject(error);
      }
    });
  }

  /** If the queue was deleted, `prepare` makes it again. */
  async function copy(
    raw: ConsumeMessage,
    to: string,
    headers: Record<string, unknown>,
    prepare: () => Promise<void>,
  ): Promise<void> {
    let how = await publish(raw, to, headers);
    if (how === "unroutable" && topology === "declare") {
      await prepare();
      how = await publish(raw, to, headers);
    }
    if (how === "unroutable") {
      const text =
        `there is no queue ${to} to put message ${idOf(raw)} aside in; make it, ` + 'or choose topology: "declare"';
      throw new PostboxError("unroutable", text);
    }
    if (how !== "routed") throw new PostboxError("publish-failed", `RabbitMQ did not take the message into ${to}`);
  }

  /** Makes the wait queue, once. */
  async function prepared(wait: WaitQueue): Promise<void> {
    const known = waits.get(wait.name) ?? prepareWait(connection, options, wait);
    waits.set(wait.name, known);
    await known.catch((error) => {
      waits.delete(wait.name);
      throw error;
    });
  }

  return {
    async wait(raw, delayMs, nextAttempt) {
      const wait = waitQueue(options.queue, delayMs);
      if (topology === "declare") await prepared(wait);
      const headers = { [attemptHeader]: nextAttempt };
      const prepare = () => prepareWait(connection, options, wait);
      await copy(raw, wait.name, headers, prepare)
        .catch((error) => {
          if (error instanceof PostboxError) throw error;
          // The client could read these headers, but cannot write them. No reader uses them.
          return copy(withPlainHeaders(raw), wait.name, headers, prepare);
        })
        .catch((error) => {
          if (error instanceof PostboxError) throw error;
          const text = `message ${idOf(raw)} cannot be retried, since its headers cannot be copied: ${error.message}`;
          throw new PermanentError(text, { code: "message-invalid", cause: error });
        });
    },
    park(raw, reason, attempt) {
      const known = attempt === undefined ? {} : { [attemptHeader]: attempt };
      const prepare = () => prepareQueue(connection, options, topology);
      const to = parkedQueue(options.queue);
      const headers = { ...known, [reasonHeader]: storedError(reason.message) };
      return copy(raw, to, headers, prepare).catch((error) => {
        if (error instanceof PostboxError) throw error;
        // With the reason, the headers exceed what the client can write; without other publishers' headers they do not.
        return copy(withoutOthers(raw), to, headers, prepare);
      });
    },
  };
}
