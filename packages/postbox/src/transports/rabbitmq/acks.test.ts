import type { Channel } from "amqplib";
import { expect, it } from "vitest";
import { type Acks, gatheredAcks } from "./acks.js";

/**
 * A broker that counts acks. It throws for a delivery that is not outstanding; `allUpTo` acks all earlier ones, too.
 */
function broker(deliveries: number) {
  const outstanding = new Set(Array.from({ length: deliveries }, (_, index) => index + 1));
  const acked = new Set<number>();
  let commands = 0;
  const channel = {
    ack({ fields: { deliveryTag } }: { fields: { deliveryTag: number } }, allUpTo: boolean) {
      commands++;
      if (!outstanding.has(deliveryTag)) throw new Error(`unknown delivery tag ${deliveryTag}`);
      for (const tag of [...outstanding]) {
        if (tag === deliveryTag || (allUpTo && tag < deliveryTag)) {
          outstanding.delete(tag);
          acked.add(tag);
        }
      }
    },
  } as unknown as Channel;
  return { channel, acked, giveBack: (tag: number) => outstanding.delete(tag), commands: () => commands };
}

/** The acks of a channel with this many deliveries. */
function acksOf(channel: Channel, deliveries: number): Acks {
  const acks = gatheredAcks(channel);
  for (let tag = 1; tag <= deliveries; tag++) acks.opened(tag);
  return acks;
}

it("acks what has ended well, whatever the order, and nothing that is open or was given back", () => {
  for (let round = 0; round < 200; round++) {
    const { channel, acked, giveBack } = broker(40);
    const acks = acksOf(channel, 40);
    const wanted = new Set<number>();
    const shuffled = Array.from({ length: 40 }, (_, index) => index + 1).sort(() => Math.random() - 0.5);
    for (const tag of shuffled.slice(0, 30)) {
      if (Math.random() < 0.2) {
        acks.without(tag);
        giveBack(tag);
      } else {
        acks.add(tag);
        wanted.add(tag);
      }
      if (Math.random() < 0.3) {
        acks.flush();
        expect([...acked].sort()).toEqual([...wanted].sort());
      }
    }
    acks.flush();
    expect([...acked].sort()).toEqual([...wanted].sort());
  }
});

it("needs one command for what is behind no open delivery, also where one was given back", () => {
  const { channel, acked, giveBack, commands } = broker(100);
  const acks = acksOf(channel, 100);
  acks.without(50);
  giveBack(50);
  for (let tag = 100; tag >= 1; tag--) if (tag !== 50) acks.add(tag);
  acks.flush();
  expect([acked.size, commands()]).toEqual([99, 1]);
});

it("writes by itself when the turn is over", async () => {
  const { channel, acked } = broker(2);
  const acks = acksOf(channel, 2);
  acks.add(1);
  acks.add(2);
  expect(acked.size).toBe(0);
  await new Promise((resolve) => setImmediate(resolve));
  expect(acked.size).toBe(2);
});

it("leaves it to others to tell that the channel has ended", async () => {
  const channel = {
    ack() {
      throw new Error("Channel closed");
    },
  } as unknown as Channel;
  const acks = acksOf(channel, 2);
  acks.add(1);
  acks.flush();
  // An error here would end the process.
  acks.add(2);
  await new Promise((resolve) => setImmediate(resolve));
});
