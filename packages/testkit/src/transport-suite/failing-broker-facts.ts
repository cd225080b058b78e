import type { Message, Receiver, Sender } from "postbox";
import { type Delivery, type Outcome, TransportDownError } from "postbox/transport";
import { describe, expect } from "vitest";
import { patienceMs, patiently } from "../patience.js";
import type { Consumer } from "./consume.js";
import { leftBehind } from "./left-behind.js";
import { expectNothingMore } from "./nothing-more.js";
import type { Stage, TransportFact } from "./transport-facts.js";

const never = new AbortController().signal;
const patience = { timeout: patienceMs };

/** What happens to messages and connections when the broker, or the network, fails. */
export function failingBrokerFacts(fact: TransportFact): void {
  describe("when the broker fails", () => {
    fact("all messages in flight get an outcome, and those reported as sent are stored", "outage", async (stage) => {
      const { harness, message, consume } = stage;
      const sender = harness.sender();
      await sender.send([message("first")], () => {}, never);
      const messages = Array.from({ length: 500 }, (_, index) => message(`m${index}`));
      const sent = new Set<string>();
      let cut: Promise<void> | undefined;
      const sending = sender.send(
        messages,
        (index, { status }) => {
          cut ??= harness.down?.();
          if (status === "sent") sent.add(messages[index]?.id ?? "");
        },
        never,
      );
      sending.catch(() => {});
      const ended = sending.catch((error) => expect(error).toBeInstanceOf(TransportDownError));
      await patiently(ended, () => "the end of the send");
      await cut;
      await harness.up?.();
      await sendAll(sender, [message("last")]);
      const received = await idsUpTo(consume(), "last");
      expect([...sent].filter((id) => !received.has(id))).toEqual([]);
    });

    fact("a sender reconnects a hundred times, and leaks nothing", "outage", async (stage) => {
      const { harness, message } = stage;
      const sender = harness.sender();
      const { signal } = new AbortController();
      await leavesNothingBehind(signal, async (turn) => {
        await harness.down?.();
        await harness.up?.();
        await sendAll(sender, [message(`m${turn}`)], signal);
      });
    });

    fact("a receiver reconnects a hundred times, and leaks nothing", "reconnects", async (stage) => {
      const { harness, queue, message } = stage;
      const [sender, receiver] = [harness.sender(), harness.receiver({ queue })];
      const handled = new Set<string>();
      // Asks for another attempt of some of them.
      const settle = async ({ message: { id }, attempt, ack, retry }: Delivery) => {
        if (attempt === 1 && id.endsWith("5")) return retry(0);
        await ack();
        handled.add(id);
      };
      const deliver = (delivery: Delivery) => settle(delivery).catch(() => {});
      // Not with `consume`, which keeps its deliveries, and with them the connections that they came by.
      await receiving(stage, receiver, deliver, (signal) =>
        leavesNothingBehind(signal, async (turn) => {
          await harness.interrupt?.(receiver);
          await sendAll(sender, [message(`m${turn}`)]);
          await expect.poll(() => handled.has(`m${turn}`), patience).toBe(true);
        }),
      );
    });

    fact(
      "deliveries of a lost connection can no longer be settled, and are redelivered",
      ["reconnects", "connectionBound"],
      async (stage) => {
        const { harness, queue, features, send, message, consume } = stage;
        await send(message("m1"), message("m2"), message("m3"));
        const consumer = consume();
        const [early, late, poison] = await consumer.take(3);
        await consumer.interrupt();
        const isDown = (error: unknown) => expect(error).toBeInstanceOf(TransportDownError);
        // The transport may have noticed the loss by now, or not.
        await early?.ack().catch(isDown);
        if (features.health) {
          await expect.poll(() => consumer.receiver.health?.().status, patience).toBe("down");
          await expect(late?.ack()).rejects.toBeInstanceOf(TransportDownError);
          // It will be redelivered. If it were parked as well, it would exist twice.
          await expect(poison?.park(new Error("never"))).rejects.toBeInstanceOf(TransportDownError);
          expect(await harness.parked(queue)).toEqual([]);
        } else for (const delivery of [late, poison]) await delivery?.ack().catch(isDown);
        const again = await consumer.take(3);
        expect(again.map(({ message: { id }, attempt, redelivered }) => [id, attempt, redelivered])).toEqual([
          ["m1", 1, true],
          ["m2", 1, true],
          ["m3", 1, true],
        ]);
        await Promise.all(again.map((delivery) => delivery.ack()));
      },
    );

    fact(
      "deliveries outlive a lost connection, if the broker knows its consumers by a session",
      "reconnects",
      async (stage) => {
        const { features, send, message, consume } = stage;
        if (features.connectionBound) return;
        await send(message("m1"), message("m2"));
        const consumer = consume();
        const [m1, m2] = await consumer.take(2);
        await consumer.interrupt();
        await m1?.ack();
        await send(message("m3"));
        const m3 = await consumer.next();
        expect([m2?.signal?.aborted, m3.message.id, m3.redelivered ?? false]).toEqual([false, "m3", false]);
        await m2?.ack();
        await m3.ack();
        consumer.abort();
        await consumer.running;
        await expectNothingMore(stage, consume());
      },
    );

    fact("health reports it, for senders and receivers, and the recovery", "health", async (stage) => {
      const { harness, queue, message } = stage;
      const [sender, receiver] = [harness.sender(), harness.receiver({ queue })];
      const status = (of: Sender | Receiver) => expect.poll(() => of.health?.().status, patience);
      await receiving(
        stage,
        receiver,
        (delivery) => delivery.ack(),
        async () => {
          await status(sender).toBe("idle");
          await sendAll(sender, [message("m1")]);
          await status(sender).toBe("connected");
          await status(receiver).toBe("connected");
          await harness.down?.();
          await status(sender).toBe("down");
          expect(sender.health?.().lastFailure).toMatchObject({ code: "transport-down" });
          await harness.up?.();
          await sendAll(sender, [message("m2")]);
          await status(sender).toBe("connected");
          const { since } = receiver.health?.() ?? {};
          // A loss between two requests is not noticed: the next one opens another connection.
          const interrupted = async () => {
            await harness.interrupt?.(receiver);
            return receiver.health?.().since;
          };
          await expect.poll(interrupted, patience).not.toEqual(since);
          await status(receiver).toBe("connected");
          expect(receiver.health?.().lastFailure).toMatchObject({ code: "transport-down" });
        },
      );
      await status(receiver).toBe("idle");
    });

    fact("a blocked broker is reported, holds up no receiver, and loses nothing", "blocks", async (stage) => {
      const { harness, message, consume, send } = stage;
      await send(message("m1"), message("m2"));
      const consumer = consume({ prefetch: 1 });
      const first = await consumer.next();
      const sender = harness.sender();
      await sendAll(sender, [message("m3")]);
      await harness.block?.();
      // Only a sender may get the error; messages that were sent by then wait in the broker.
      const waiting: Promise<void>[] = [];
      const sendOn = () => {
        const status = sender.health?.().status;
        if (status !== "blocked") waiting.push(sendAll(sender, [message(`waiting-${waiting.length}`)]));
        return status;
      };
      await expect.poll(sendOn, patience).toBe("blocked");
      const refused = sender.send([message("refused")], () => {}, never);
      await expect(refused).rejects.toBeInstanceOf(TransportDownError);
      await expect(refused).rejects.toMatchObject({ during: "connect" });
      await first.ack();
      await (await consumer.next()).ack();
      await harness.unblock?.();
      await Promise.all(waiting);
      await expect.poll(() => sender.health?.().status, patience).toBe("connected");
      await sendAll(sender, [message("last")]);
      const expected = ["m3", ...waiting.map((_, index) => `waiting-${index}`), "last"];
      expect([...(await idsUpTo(consumer, "last"))].sort()).toEqual(expected.sort());
    });

    fact("confirmed messages are there after a restart", "restarts", async (stage) => {
      const { harness, send, message, consume } = stage;
      const messages = Array.from({ length: 20 }, (_, index) => message(`m${index}`, { key: "k" }));
      await send(...messages);
      await harness.restart?.();
      const received = await consume().take(20);
      expect(received.map((delivery) => delivery.message.id)).toEqual(messages.map(({ id }) => id));
    });

    fact("no message in flight is lost in a crash", "restarts", async (stage) => {
      const { harness, message, consume } = stage;
      const sender = harness.sender();
      const handled = new Set<string>();
      consume({
        accept: ({ message: { id }, ack }) =>
          ack().then(
            () => void handled.add(id),
            () => {},
          ),
      });
      let sent = 0;
      let restarted = false;
      const restarting = harness.restart?.().then(() => {
        restarted = true;
      });
      for (let batch = 0; !restarted || batch < 3; batch++) {
        sent += 500;
        await sendAll(
          sender,
          Array.from({ length: 500 }, (_, index) => message(`m${batch}-${index}`)),
        );
      }
      await restarting;
      await expect.poll(() => handled.size, { timeout: 60_000 }).toBe(sent);
    });
  });
}

/** Receives until `proof` has ended. */
async function receiving(
  { queue, event }: Stage,
  receiver: Receiver,
  deliver: (delivery: Delivery) => Promise<void>,
  prove: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const stopping = new AbortController();
  const running = receiver.receive({ consumer: queue, events: [event], deliver }, stopping.signal);
  try {
    await prove(stopping.signal);
  } finally {
    stopping.abort();
    await running;
  }
}

/** Acts like a relay: sends messages again until all are sent. */
async function sendAll(sender: Sender, messages: readonly Message[], signal = never): Promise<void> {
  const giveUp = Date.now() + 60_000;
  let open = messages;
  for (;;) {
    const outcomes: (Outcome | undefined)[] = open.map(() => undefined);
    const lost = await sender
      .send(open, (index, outcome) => (outcomes[index] = outcome), signal)
      .then(
        () => undefined,
        (error) => error,
      );
    open = open.filter((_, index) => outcomes[index]?.status !== "sent");
    if (open.length === 0) return;
    if (Date.now() > giveUp) throw new Error(`${open.length} of ${messages.length} were not sent`, { cause: lost });
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Acknowledges deliveries up to `last`. Those that it cannot acknowledge are redelivered. */
async function idsUpTo(consumer: Consumer, last: string): Promise<Set<string>> {
  const ids = new Set<string>();
  while (!ids.has(last)) {
    const delivery = await consumer.next();
    await delivery.ack().then(
      () => ids.add(delivery.message.id),
      () => {},
    );
  }
  return ids;
}

/** Takes a few turns for what is made only once, and then a hundred more. */
async function leavesNothingBehind(signal: AbortSignal, take: (turn: number) => Promise<void>): Promise<void> {
  let turn = 0;
  while (turn < 5) await take(turn++);
  const before = leftBehind(signal);
  while (turn < 105) await take(turn++);
  // Less than one object in four turns: objects that are just being opened or closed come and go.
  const more = () => {
    const now = leftBehind(signal);
    return Math.max(now.open - before.open, now.remembered - before.remembered, now.listening - before.listening);
  };
  await expect.poll(more, patience).toBeLessThan(25);
}
