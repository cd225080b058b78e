import { memoryBroker } from "postbox/memory";
import type { Outcome } from "postbox/transport";
import { describe, expect, it } from "vitest";
import { type FaultPlan, faultySender } from "./faulty-sender.js";
import { testMessage } from "./messages.js";

/** Sends m0(a) m1(b) m2(a) m3(b) under the plan. */
async function run(plan: FaultPlan) {
  const messages = [..."abab"].map((key, index) => testMessage(`m${index}`, { key }));
  const broker = memoryBroker();
  broker.bind("queue", messages);
  const reported: Record<string, Outcome["status"]> = {};
  const sending = faultySender(broker.sender(), plan).send(
    messages,
    (index, outcome) => {
      reported[`m${index}`] = outcome.status;
    },
    new AbortController().signal,
  );
  const during = await sending.then(
    () => "sent",
    (error: { during: string }) => error.during,
  );
  return { reported, during, arrived: broker.depth("queue") };
}

describe("faultySender", () => {
  it("passes on messages without a fault", async () => {
    const sent = { m0: "sent", m1: "sent", m2: "sent", m3: "sent" };
    expect(await run(() => undefined)).toEqual({ reported: sent, during: "sent", arrived: 4 });
  });

  it("is unreachable before anything arrives", async () => {
    const plan: FaultPlan = ({ id }) => (id === "m2" ? "down" : undefined);
    expect(await run(plan)).toEqual({ reported: {}, during: "connect", arrived: 0 });
  });

  it("loses the connection before or after a message", async () => {
    const reported = { m0: "sent", m1: "sent" };
    expect(await run((_, before) => (before === 2 ? "lost" : undefined))).toEqual({
      reported,
      during: "send",
      arrived: 2,
    });
    const unconfirmed = await run((_, before) => (before === 2 ? "unconfirmed" : undefined));
    expect(unconfirmed).toEqual({ reported, during: "send", arrived: 3 });
  });

  it.each(["rejected", "dropped"] as const)(
    "reports one message as %s, and holds back the rest of its key",
    async (fault) => {
      const plan: FaultPlan = ({ id }) => (id === "m0" ? fault : undefined);
      const reported = { m0: fault, m1: "sent", m2: "failed", m3: "sent" };
      expect(await run(plan)).toEqual({ reported, during: "sent", arrived: 2 });
    },
  );
});
