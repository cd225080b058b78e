import type { ChannelModel, ConsumeMessage } from "amqplib";
import { expect, it } from "vitest";
import { createAside } from "./aside.js";
import type { ConfirmedPublishing } from "./confirms.js";
import type { Link } from "./link.js";

const options = { queue: "billing", queueType: "quorum", singleActiveConsumer: false } as const;

function asideOver(...publishes: readonly ConfirmedPublishing["publish"][]) {
  const left = publishes.values();
  const get = async () => ({ publishing: { publish: left.next().value } }) as unknown as Link;
  return createAside({} as ChannelModel, { get }, options, "none");
}

const raw = {
  content: Buffer.from("7"),
  fields: { exchange: "" },
  properties: { headers: { theirs: "kept" } },
} as unknown as ConsumeMessage;

it("leaves out what others wrote only where the client cannot write it", async () => {
  const headers: unknown[] = [];
  const aside = asideOver(
    () => {
      throw new RangeError("out of range");
    },
    (_exchange, _queue, { properties }, done) => {
      headers.push(properties.headers);
      done("routed");
    },
  );
  await aside.park(raw, new Error("poison"), 3);
  expect(headers).toEqual([{ "postbox-attempt": 3, "postbox-reason": "poison" }]);
});

it("does not take a connection that has just ended for headers that nobody can write", async () => {
  let published = 0;
  const aside = asideOver(
    () => {
      throw Object.assign(new Error("Channel closed"), { name: "IllegalOperationError" });
    },
    () => published++,
  );
  await expect(aside.park(raw, new Error("poison"), 3)).rejects.toMatchObject({ code: "publish-failed" });
  expect(published).toBe(0);
});
