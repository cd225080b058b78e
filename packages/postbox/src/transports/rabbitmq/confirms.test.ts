import { EventEmitter } from "node:events";
import { testMessage } from "@postbox/testkit";
import type { ConfirmChannel } from "amqplib";
import { describe, expect, it } from "vitest";

import { toAmqp } from "./amqp-message.js";
import { type Confirmation, confirmedPublishing } from "./confirms.js";

/** A channel whose confirms, returns and events the test emits, in any order. */
function channelInHand() {
  const published: { properties: { headers: object }; done: (error: Error | null) => void }[] = [];
  let room = true;
  const channel = Object.assign(new EventEmitter(), {
    publish(_exchange: string, _key: string, _content: Buffer, properties: { headers: object }, done: () => void) {
      published.push({ properties, done });
      return room;
    },
  });
  return {
    channel: channel as unknown as ConfirmChannel,
    say: (event: "drain" | "close") => channel.emit(event),
    giveBack: (nth: number) =>
      channel.emit("return", { properties: { headers: { ...published[nth]?.properties.headers } } }),
    confirm: (nth: number, error: Error | null = null) => published[nth]?.done(error),
    fill() {
      room = false;
    },
  };
}

function publishing(count: number) {
  const hand = channelInHand();
  const publishing = confirmedPublishing(hand.channel);
  const ends: (Confirmation | undefined)[] = Array.from({ length: count }, () => undefined);
  const publish = (nth: number) =>
    publishing.publish("", "queue", toAmqp(testMessage("m1"), "binary"), (how) => (ends[nth] = how));
  for (let nth = 0; nth < count; nth++) publish(nth);
  return { ...hand, publishing, publish, ends };
}

describe("a confirmed publish", () => {
  it("is not taken for another of the same id, in whatever order they are confirmed", () => {
    const { giveBack, confirm, ends } = publishing(3);
    giveBack(1);
    for (const nth of [2, 0, 1]) confirm(nth);
    expect(ends).toEqual(["routed", "unroutable", "routed"]);
  });

  it("tells what the broker refused from what was lost", () => {
    const { confirm, ends } = publishing(2);
    confirm(0, new Error("message nacked"));
    confirm(1, new Error("channel closed"));
    expect(ends).toEqual(["nacked", "lost"]);
  });
});

describe("whoever waits for room", () => {
  it.each(["drain", "close"] as const)("goes on at %s", async (event) => {
    const { fill, publish, publishing: of, say } = publishing(0);
    expect(of.room).toBe(true);
    fill();
    publish(0);
    expect(of.room).toBe(false);
    const waiting = Promise.all([of.drained(), of.drained()]);
    say(event);
    await waiting;
    expect(of.room).toBe(true);
  });
});
