import type { Message } from "postbox";
import { expect } from "vitest";
import type { Consumer } from "./consume.js";
import type { Stage } from "./transport-facts.js";

/**
 * Fails if a consumer with room gets another message. The messages of `last` go through the same queue, behind
 * everything that is in it, so the consumer must get them next. If a topic is divided, send one to each of its streams.
 */
export async function expectNothingMore(stage: Stage, consumer: Consumer, last?: readonly Message[]): Promise<void> {
  const sent = last ?? [stage.message("last")];
  await stage.send(...sent);
  const got = await consumer.take(sent.length);
  expect(got.map(({ message }) => message.id).sort()).toEqual(sent.map(({ id }) => id).sort());
}

/**
 * Resolves when a message that is sent now has reached the consumer of another queue. By then the broker has delivered
 * whatever it would deliver to a consumer without room, or to one that is stopping. The message stays in the queue of
 * the stage.
 */
export async function anotherQueueIsServed(stage: Stage): Promise<void> {
  const queue = `another-${stage.queue}`;
  await stage.harness.bind(queue, [stage.event]);
  const consumer = stage.consume({ queue });
  await stage.send(stage.message("passing"));
  for (let id = ""; id !== "passing"; ) {
    const delivery = await consumer.next();
    id = delivery.message.id;
    await delivery.ack();
  }
  await consumer.abandon();
}
