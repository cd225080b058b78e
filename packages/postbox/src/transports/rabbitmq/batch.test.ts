import { gate, testMessage, testMessages } from "@postbox/testkit";
import type { Message } from "postbox";
import type { Outcome } from "postbox/transport";
import { expect, it } from "vitest";
import { createBatch } from "./batch.js";
import type { Link } from "./link.js";
import { routeOf } from "./route.js";

const options = {
  place: "amqp://test",
  route: routeOf,
  mode: "binary",
  maxMessageBytes: 1000,
  unrouted: (_: Message, error: Error): Outcome => ({ status: "dropped", error }),
} as const;

/** A batch over a socket with room for two messages at a time. */
function batchOf(count: number) {
  let drained = gate();
  const published: string[] = [];
  let room = 2;
  const link = {
    lost: false,
    publishing: {
      get room() {
        return room > 0;
      },
      publish(_exchange: string, _key: string, { properties }: { properties: { messageId: string } }) {
        room--;
        published.push(properties.messageId);
      },
      drained: () => drained.opened,
    },
  };
  const batch = createBatch(link as unknown as Link, testMessages("m", count), options, () => {});
  const drain = () => {
    room = 2;
    drained.open();
    drained = gate();
  };
  return { batch, link, published, drain };
}

/** Enough time for code that waits for nothing. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

it("writes no more than the socket takes, and the rest when it takes more", async () => {
  const { batch, published, drain } = batchOf(5);
  const publishing = batch.publish(new Set());
  await turn();
  expect(published).toEqual(["m-0", "m-1"]);
  drain();
  await turn();
  expect(published).toHaveLength(4);
  drain();
  await publishing;
  expect(published).toEqual(["m-0", "m-1", "m-2", "m-3", "m-4"]);
});

it.each(["lost", "over"])("writes nothing more once it is %s", async (how) => {
  const { batch, link, published, drain } = batchOf(5);
  const publishing = batch.publish(new Set());
  await turn();
  if (how === "lost") link.lost = true;
  else batch.end();
  drain();
  await publishing;
  expect(published).toHaveLength(2);
});

it("charges a topic that its user may not write to that routing key, and not to the others of its exchange", () => {
  const outcomes: Outcome[] = [];
  const route = ({ type }: { readonly type: string }) => ({ exchange: "shop", routingKey: type });
  const messages = [testMessage("1", { type: "Open" }), testMessage("2", { type: "Secret" })];
  const batch = createBatch({} as Link, messages, { ...options, route }, (index, outcome) => {
    outcomes[index] = outcome;
  });
  batch.failAt(403, "ACCESS_REFUSED - access to topic 'Secret' in exchange 'shop' in vhost '/' refused for user 'u'");
  expect(outcomes).toMatchObject([{ status: "failed", uncounted: true }, { status: "failed" }]);
  expect(outcomes[1]).not.toHaveProperty("uncounted");
});

it("takes what goes to an exchange that was deleted meanwhile as unroutable, and nothing else", () => {
  const outcomes: Outcome[] = [];
  const route = ({ type }: { readonly type: string }) => ({ exchange: type, routingKey: "" });
  const messages = [testMessage("1", { type: "here" }), testMessage("2", { type: "gone" })];
  const batch = createBatch({} as Link, messages, { ...options, route }, (index, outcome) => {
    outcomes[index] = outcome;
  });
  batch.failAt(404, "NOT_FOUND - no exchange 'gone' in vhost '/'");
  expect(outcomes).toMatchObject([
    { status: "failed", uncounted: true, error: { code: "publish-failed" } },
    { status: "dropped", error: { code: "unroutable" } },
  ]);
  const advice = "start its consumer first, or make its queue with messaging.prepare() there";
  expect((outcomes[1] as { readonly error?: Error } | undefined)?.error?.message).toContain(advice);
});
