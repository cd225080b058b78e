import { getEventListeners } from "node:events";
import { gate, manualRuntime, telemetryLog } from "@postbox/testkit";
import { describe, expect, it } from "vitest";
import { PostboxError } from "../errors.js";
import { createMessage } from "../message/message.js";
import type { Delivery } from "../transport.js";
import type { BaseContext } from "./context.js";
import type { Handled } from "./handle.js";
import type { Keeper } from "./keeper.js";
import { Session, type SessionOptions } from "./session.js";

type Handling = (context: Omit<BaseContext, "handler">) => Promise<Handled>;

const handled: Handling = async () => "by-handler";

function session(handle: Handling, own: Partial<SessionOptions> = {}) {
  const [runtime, log] = [manualRuntime(), telemetryLog()];
  const made = new Session(
    new Map([["shop.Placed", (context) => ({ result: handle(context), ended: () => undefined })]]),
    {
      consumer: "billing",
      ack: "on-success",
      concurrency: 1,
      maxBuffered: 100,
      maxAttempts: 3,
      backoff: () => 7,
      onUnknownType: "park",
      unknownWaitMs: 1000,
      shutdownTimeoutMs: 1000,
      slowAfterMs: 60_000,
      telemetry: log.telemetry,
      runtime,
      ...own,
    },
  );
  const told = (...names: string[]) => log.events.map(({ name }) => name).filter((name) => names.includes(name));
  return { ...made, log, runtime, told };
}

/** A stream that the broker can revoke. It records how its deliveries were settled. */
function stream(name: string) {
  const revoking = new AbortController();
  const settled: string[] = [];
  const deliveryOf = (id: string, more: Partial<Delivery> & { readonly type?: string; readonly key?: string } = {}) => {
    const { type = "shop.Placed", key, ...given } = more;
    const verb = (done: string) => async () => void settled.push(`${done} ${id}`);
    const message = createMessage({ id, source: "/", type, data: Buffer.from("{}"), ...(key && { key }) });
    const verbs = { ack: verb("ack"), retry: verb("retry"), park: verb("park"), release: verb("release") };
    return { message, attempt: 1, stream: name, signal: revoking.signal, ...verbs, ...given } as Delivery;
  };
  const revoke = () => revoking.abort(new PostboxError("transport-down", "the connection was lost"));
  return { deliveryOf, settled, revoke, signal: revoking.signal };
}

/** A keeper with this `take`; by default, it takes over nothing. */
const keeperOf = (take: Keeper["take"] = async () => undefined): Keeper => ({ over: (receiver) => receiver, take });

describe("a delivery that the broker takes back", () => {
  it("is dropped if it has not been started, and its late result if it has", async () => {
    const finish = gate();
    const { deliver, close, log, told } = session(async () => {
      await finish.opened;
      return "by-handler";
    });
    const [lost, standing] = [stream("a"), stream("b")];
    await deliver(lost.deliveryOf("m1"));
    await deliver(lost.deliveryOf("m2"));
    await deliver(standing.deliveryOf("m3"));
    lost.revoke();
    expect(lost.settled).toEqual(["release m2"]);
    finish.open();
    await log.until("delivery.acked");
    await close();
    expect(log.of("delivery.received").map(({ id }) => id)).toEqual(["m1", "m3"]);
    // m1 is released once its handler has ended, because the receiver may wait for that.
    expect([lost.settled, standing.settled]).toEqual([["release m2", "release m1"], ["ack m3"]]);
    expect(log.of("delivery.revoked").map(({ id }) => id)).toEqual(["m2", "m1"]);
    expect(told("router.failed", "delivery.released")).toEqual([]);
  });

  it("lets the next of its key go, which came by another stream", async () => {
    const finish = gate();
    const { deliver, close, log } = session(async () => {
      await finish.opened;
      return "by-handler";
    });
    const [lost, standing] = [stream("a"), stream("b")];
    await deliver(standing.deliveryOf("m1"));
    await deliver(lost.deliveryOf("m2", { key: "k" }));
    await deliver(standing.deliveryOf("m3", { key: "k" }));
    lost.revoke();
    finish.open();
    await log.until("delivery.acked", 2);
    await close();
    expect([lost.settled, standing.settled]).toEqual([["release m2"], ["ack m1", "ack m3"]]);
  });

  it.each<[string, Handling]>([
    ["throws", () => Promise.reject(new Error("no paper"))],
    ["throws for good", () => Promise.reject(new PostboxError("data-invalid", "never"))],
    ["lost its store", () => Promise.reject(new PostboxError("transaction-lost", "the connection is gone"))],
  ])("is neither retried nor parked, nor an error, when its handler %s", async (_, fails) => {
    const finish = gate();
    const { deliver, close, log, told } = session(async (context) => {
      await finish.opened;
      return fails(context);
    });
    const { deliveryOf, settled, revoke } = stream("a");
    await deliver(deliveryOf("m1"));
    await log.until("delivery.received");
    revoke();
    finish.open();
    await log.until("delivery.revoked");
    await close();
    expect(settled).toEqual(["release m1"]);
    expect(told("router.failed", "delivery.retried", "delivery.parked")).toEqual([]);
  });

  it("aborts context.signal, so that its transaction rolls back, but not behind an inbox", async () => {
    const reasons: unknown[] = [];
    for (const keeper of [undefined, keeperOf()]) {
      const finish = gate();
      const { deliver, close, log } = session(async ({ signal }) => {
        await finish.opened;
        reasons.push(signal.reason);
        return "by-handler";
      }, keeper && { keeper });
      const { deliveryOf, revoke } = stream("a");
      await deliver(deliveryOf("m1"));
      await log.until("delivery.received");
      revoke();
      finish.open();
      await log.until("delivery.revoked");
      await close();
    }
    expect(reasons).toMatchObject([{ code: "delivery-revoked" }, undefined]);
    expect(String(reasons[0])).toContain("the connection was lost");
  });

  it("is given up at a stop like any other: its context.signal says so", async () => {
    let signal: AbortSignal | undefined;
    const { deliver, close, runtime, log } = session((context) => {
      signal = context.signal;
      return new Promise(() => {});
    });
    const { deliveryOf, settled } = stream("a");
    await deliver(deliveryOf("m1"));
    await log.until("delivery.received");
    const closed = close();
    await runtime.advance(1000);
    await closed;
    expect(signal?.reason).toMatchObject({ code: "stop-timeout" });
    expect(settled).toEqual(["release m1"]);
  });

  it("is no error when that is why its settlement failed", async () => {
    const { deliveryOf, revoke } = stream("a");
    const { deliver, close, told } = session(handled);
    const ack = async () => {
      revoke();
      throw new PostboxError("transport-down", "the connection was lost");
    };
    await deliver(deliveryOf("m1", { ack }));
    await close();
    expect(told("router.failed", "delivery.revoked", "delivery.acked")).toEqual(["delivery.revoked"]);
  });

  it("is not handled if that was before it was handed over", async () => {
    const { deliveryOf, settled, revoke } = stream("a");
    const { deliver, close, told } = session(handled);
    revoke();
    await deliver(deliveryOf("m1"));
    await close();
    expect(settled).toEqual(["release m1"]);
    expect(told("delivery.received", "delivery.revoked")).toEqual(["delivery.revoked"]);
  });

  it("costs no listener per message", async () => {
    const { deliver, close, log } = session(handled);
    const { deliveryOf, signal } = stream("a");
    for (let n = 0; n < 100; n++) await deliver(deliveryOf(`m${n}`));
    await log.until("delivery.acked", 100);
    expect(getEventListeners(signal, "abort")).toHaveLength(1);
    await close();
  });
});

describe("back-pressure", () => {
  it("is that of each stream: one that is full holds up no other", async () => {
    const finish = gate();
    const { deliver, close } = session(
      async () => {
        await finish.opened;
        return "by-handler";
      },
      { maxBuffered: 2 },
    );
    const [hot, cool] = [stream("hot"), stream("cool")];
    const waits = (pushed: Promise<void>) =>
      Promise.race([pushed.then(() => false), new Promise(setImmediate).then(() => true)]);
    expect(await waits(deliver(hot.deliveryOf("m1", { key: "k" })))).toBe(false);
    expect(await waits(deliver(hot.deliveryOf("m2", { key: "k" })))).toBe(false);
    expect(await waits(deliver(hot.deliveryOf("m3", { key: "k" })))).toBe(true);
    expect(await waits(deliver(cool.deliveryOf("m4")))).toBe(false);
    finish.open();
    await close();
  });

  it("ends with the stream that it was for", async () => {
    const { deliver, close } = session(() => new Promise(() => {}), { maxBuffered: 1, shutdownTimeoutMs: 1 });
    const { deliveryOf, revoke } = stream("a");
    await deliver(deliveryOf("m1"));
    const second = deliver(deliveryOf("m2"));
    revoke();
    await second;
    void close();
  });
});

describe("on a broker that settles in order", () => {
  const busy = () => new PostboxError("inbox-busy", "another process handles it");
  const inOrder = { settles: "in-order", keeper: keeperOf() } as const;

  it("what is not the message's fault is handled again in its place", async () => {
    let tries = 0;
    const { deliver, close, runtime, log } = session(async () => {
      if (++tries < 4) throw busy();
      return "by-handler";
    }, inOrder);
    const { deliveryOf, settled } = stream("a");
    await deliver(deliveryOf("m1"));
    while (settled.length === 0) await runtime.advance(7);
    expect([tries, settled]).toEqual([4, ["ack m1"]]);
    expect(log.of("delivery.retried")).toMatchObject(
      [1, 2, 3].map(() => ({ attempt: 1, retryInMs: 7, error: { code: "inbox-busy" } })),
    );
    await close();
  });

  it.each(["stop", "revocation"])("such a message waits no longer than until the %s", async (end) => {
    const { deliver, close, log, told } = session(() => Promise.reject(busy()), inOrder);
    const { deliveryOf, settled, revoke } = stream("a");
    await deliver(deliveryOf("m1"));
    await log.until("delivery.retried");
    if (end === "revocation") {
      revoke();
      await log.until("delivery.revoked");
    }
    await close();
    expect(settled).toEqual(["release m1"]);
    expect(told("router.failed")).toEqual([]);
  });

  it("a type without a handler waits in the inbox for another instance", async () => {
    const taken: unknown[] = [];
    const keeper = keeperOf(async (_, verdict) => {
      taken.push([verdict.to, verdict.error]);
      return verdict;
    });
    const { deliver, close, log } = session(handled, { ...inOrder, keeper });
    const { deliveryOf, settled } = stream("a");
    await deliver(deliveryOf("m1", { type: "shop.Unknown" }));
    await log.until("delivery.acked");
    await close();
    expect([taken, settled]).toMatchObject([[["retry", { code: "no-handler" }]], ["ack m1"]]);
  });

  it("what no inbox takes is reported and delivered again, not lost", async () => {
    const { deliver, close, runtime, log } = session(() => Promise.reject(new Error("no paper")), inOrder);
    const { deliveryOf, settled } = stream("a");
    await deliver(deliveryOf("m1"));
    await log.until("router.failed");
    expect(settled).toEqual([]);
    await runtime.advance(7);
    await close();
    expect(settled).toEqual(["release m1"]);
    expect(String(log.of("router.failed")[0]?.error)).toContain("neither its inbox nor its broker can set it aside");
  });
});
