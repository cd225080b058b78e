import { describe, expect } from "vitest";
import { dividedTopic, keyedMessages } from "./divided-topic.js";
import type { TransportFact } from "./transport-facts.js";

/** A stream that is unavailable to senders, while the others are available. */
export function scopeFacts(fact: TransportFact): void {
  describe("a stream unavailable to senders", () => {
    fact("is reported for its messages, and all others are sent", ["streams", "scopes"], async (stage) => {
      const topic = await dividedTopic(stage, 4);
      const first = keyedMessages(topic, 20, 20);
      await stage.send(...first);
      const streams = await topic.streamsById(20);
      const streamOf = (key: string | undefined) => streams.get(`${key}-0`) as string;
      const lost = streamOf("k0");
      await stage.harness.setAvailable?.(topic.event.topic, lost, false);

      const again = first.map(({ key }) => topic.message(`${key}-1`, { key: key as string }));
      const behind = again.map(({ key }) => topic.message(`${key}-2`, { key: key as string }));
      const outcomes = await stage.send(...again, ...behind);
      for (const [index, { key }] of [...again, ...behind].entries()) {
        const isLost = streamOf(key) === lost;
        if (!isLost) expect(outcomes[index]).toEqual({ status: "sent" });
        // A sender that keeps order may hold back messages behind one of their key.
        else expect(outcomes[index]?.status).toMatch(index < again.length ? /^unavailable$/ : /^(unavailable|failed)$/);
      }

      await stage.harness.setAvailable?.(topic.event.topic, lost, true);
      const late = again.filter(({ key }) => streamOf(key) === lost);
      expect(await stage.send(...late)).toEqual(late.map(() => ({ status: "sent" })));
    });

    fact("is the scope of exactly its keys", ["streams", "scopes"], async (stage) => {
      const topic = await dividedTopic(stage, 4);
      const messages = keyedMessages(topic, 20, 20);
      await stage.send(...messages);
      const streams = await topic.streamsById(20);
      const sender = stage.harness.sender();
      const scopes = new Map(messages.map((message) => [message.id, sender.scopeOf?.(message)]));
      expect([...scopes.values()]).not.toContain(undefined);
      for (const { id } of messages) {
        for (const other of messages) {
          const sameStream = streams.get(id) === streams.get(other.id);
          expect(scopes.get(id) === scopes.get(other.id)).toBe(sameStream);
        }
      }
    });

    fact("gets no message without a key, which can go elsewhere", ["streams", "scopes"], async (stage) => {
      const topic = await dividedTopic(stage, 2);
      await stage.send(...keyedMessages(topic, 20, 20));
      const [lost] = new Set((await topic.streamsById(20)).values());
      await stage.harness.setAvailable?.(topic.event.topic, lost as string, false);
      const keyless = Array.from({ length: 10 }, (_, n) => topic.message(`keyless-${n}`));
      expect(await stage.send(...keyless)).toEqual(keyless.map(() => ({ status: "sent" })));
    });
  });
}
