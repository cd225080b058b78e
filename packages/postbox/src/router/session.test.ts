import { getEventListeners } from "node:events";
import { gate, manualRuntime, telemetryLog } from "@postbox/testkit";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ConfigError, PermanentError, PostboxError } from "../errors.js";
import { defineEvent } from "../event/define-event.js";
import { createMessage } from "../message/message.js";
import type { Delivery, Subscription } from "../transport.js";
import type { BaseContext, ManualAck } from "./context.js";
import { createRouter } from "./create-router.js";
import type { Handled } from "./handle.js";
import { Session, type SessionOptions } from "./session.js";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({}) });

/** A delivery that records its settlements. `answers` replaces single verbs. */
function delivery(answers: Partial<Delivery> = {}, attempt = 1, id = "m1") {
  const verbs: string[] = [];
  const verb = (name: "ack" | "retry" | "park" | "release") => (argument: never) => {
    verbs.push(name);
    return answers[name]?.(argument) ?? Promise.resolve();
  };
  const message = createMessage({ id, source: "/", type: Placed.type, data: Buffer.from("{}") });
  const made = {
    message,
    attempt,
    ack: verb("ack"),
    retry: verb("retry"),
    park: verb("park"),
    release: verb("release"),
  } as Delivery;
  return { delivery: made, verbs };
}

const never = () => new Promise<void>(() => {});
const refuses = () => Promise.reject(new Error("the connection is gone"));

/** A router on a receiver whose behaviour the test defines. */
function world(receive: (subscription: Subscription, signal: AbortSignal) => Promise<void>, handler = async () => {}) {
  const runtime = manualRuntime();
  const log = telemetryLog();
  const options = { runtime, telemetry: log.telemetry, shutdownTimeoutMs: 1000, maxAttempts: 3 };
  const router = createRouter("billing", options).on(Placed, handler);
  router.start({ name: "hand-made", receive });
  return { runtime, log, router };
}

const untilAborted = async (signal: AbortSignal) => {
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
};

describe("a stop is bounded", () => {
  it("when the receiver does not end, by an error that is told too", async () => {
    const { router, runtime, log } = world(never);
    const stopped = router.stop();
    const refusal = expect(stopped).rejects.toMatchObject({
      code: "stop-timeout",
      message: expect.stringContaining("its receiver hand-made did not end within 5000 ms"),
    });
    await runtime.advance(4999);
    expect(log.of("router.failed")).toEqual([]);
    await runtime.advance(1);
    await refusal;
    expect(log.of("router.failed")).toMatchObject([{ error: { code: "stop-timeout" } }]);
    router.start({ name: "another", receive: async () => {} });
    await router.stop();
  });

  it("when it was stopped before it ran, and the receiver does not care", async () => {
    const runtime = manualRuntime();
    const router = createRouter("billing", { runtime }).on(Placed, () => {});
    const refusal = expect(router.run({ name: "deaf", receive: never }, AbortSignal.abort())).rejects.toMatchObject({
      code: "stop-timeout",
    });
    await runtime.advance(5000);
    await refusal;
  });

  it("when the broker does not answer to what is given back", async () => {
    const { delivery: late, verbs } = delivery({ release: never });
    const receive = async ({ deliver }: Subscription, signal: AbortSignal) => {
      await deliver(late);
      await untilAborted(signal);
    };
    const { router, runtime, log } = world(receive, never);
    await log.until("delivery.received");
    const stopped = router.stop();
    await runtime.advance(1000);
    expect(verbs).toEqual(["release"]);
    await runtime.advance(5000);
    await stopped;
  });
});

it.each([
  ["ends by itself", async () => {}],
  ["fails", refuses],
])("a receiver that %s leaves its handlers the time to end, and the signal alone", async (_, ending) => {
  const finish = gate();
  const { delivery: only, verbs } = delivery();
  const log = telemetryLog();
  const router = createRouter("billing", { telemetry: log.telemetry }).on(Placed, () => finish.opened);
  const { signal } = new AbortController();
  const receive = async ({ deliver }: Subscription) => {
    await deliver(only);
    await ending();
  };
  const ended = router.run({ name: "short", receive }, signal).catch(({ message }) => message);
  await log.until("delivery.received");
  await new Promise(setImmediate);
  expect(verbs).toEqual([]);
  finish.open();
  expect(await ended).toBe(ending === refuses ? "[unknown] the connection is gone" : undefined);
  expect(verbs).toEqual(["ack"]);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

describe("while it stops", () => {
  it("a message that comes is given back, and that this fails does not fail the stop", async () => {
    for (const [release, told] of [
      [async () => {}, 0],
      [refuses, 1],
    ] as const) {
      const { delivery: late, verbs } = delivery({ release });
      const { router, log } = world(async ({ deliver }, signal) => {
        await untilAborted(signal);
        await deliver(late);
      });
      await router.stop();
      expect(verbs).toEqual(["release"]);
      expect(log.of("router.failed")).toHaveLength(told);
      expect(log.of("delivery.received")).toEqual([]);
    }
  });
});

/** A session in which the test defines how each message is handled. */
function session(
  handle: (context: Omit<BaseContext, "handler"> & Partial<ManualAck>) => Promise<Handled>,
  own: Partial<SessionOptions>,
) {
  const runtime = manualRuntime();
  const log = telemetryLog();
  const made = new Session(
    new Map([[Placed.type, (context) => ({ result: handle(context), ended: () => undefined })]]),
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
  return { ...made, log, runtime };
}
const handled = async () => "by-handler" as const;
const fails = () => Promise.reject(new Error("no paper"));
const isHopeless = () => Promise.reject(new PermanentError("never"));

describe("a settlement that fails", () => {
  it.each([
    ["ack", handled],
    ["retry", fails],
    ["park", isHopeless],
  ] as const)("%s: is told, and the message given back, once", async (verb, handle) => {
    const { deliver, close, log } = session(handle, {});
    const { delivery: one, verbs } = delivery({ [verb]: refuses, release: refuses });
    await deliver(one);
    await close();
    expect(verbs).toEqual([verb, "release"]);
    expect(log.of("router.failed")).toMatchObject([{ error: { message: "[unknown] the connection is gone" } }]);
    expect(log.events.map(({ name }) => name)).not.toContain(`delivery.${verb}ed`);
  });

  it("release: is told, and not tried again", async () => {
    const { deliver, close, log } = session(
      async ({ delivery }) => {
        await delivery?.release();
        return "by-handler";
      },
      { ack: "manual" },
    );
    const { delivery: one, verbs } = delivery({ release: refuses });
    await deliver(one);
    await close();
    expect(verbs).toEqual(["release"]);
    expect(log.of("router.failed")).toHaveLength(1);
    expect(log.of("delivery.released")).toEqual([]);
  });
});

describe("a settlement by hand", () => {
  type Verb = "ack" | "park" | "retry" | "release";

  it.each<[Verb, Verb, Verb[], string | undefined]>([
    ["ack", "ack", ["ack"], "delivery-settled"],
    ["ack", "park", ["ack"], "delivery-settled"],
    ["retry", "ack", ["retry"], "delivery-settled"],
    ["park", "release", ["park"], undefined],
    ["release", "ack", ["release"], undefined],
    ["release", "release", ["release"], undefined],
  ])("%s, then %s", async (first, second, expected, code) => {
    let thrown: unknown;
    const { deliver, close } = session(
      async ({ delivery }) => {
        await delivery?.[first](0 as never);
        await delivery?.[second](0 as never).catch((error) => {
          thrown = error;
        });
        return "by-handler";
      },
      { ack: "manual" },
    );
    const { delivery: one, verbs } = delivery();
    await deliver(one);
    await close();
    expect(verbs).toEqual(expected);
    expect((thrown as { code?: string } | undefined)?.code).toBe(code);
  });

  it("may come while it stops: the stop waits for it", async () => {
    let later: ManualAck["delivery"] | undefined;
    const { deliver, close, log } = session(
      async (context) => {
        later = context.delivery;
        return "by-handler";
      },
      { ack: "manual" },
    );
    const { delivery: one, verbs } = delivery();
    await deliver(one);
    await log.until("delivery.handled");
    const closed = close();
    await new Promise(setImmediate);
    await later?.ack();
    await closed;
    expect(verbs).toEqual(["ack"]);
  });
});

it("a stop waits for a handler also when its message is settled", async () => {
  const finish = gate();
  let over = false;
  const { deliver, close, log } = session(
    async ({ delivery }) => {
      await delivery?.ack();
      await finish.opened;
      return "by-handler";
    },
    { ack: "manual" },
  );
  await deliver(delivery().delivery);
  await log.until("delivery.acked");
  const closed = close().then(() => {
    over = true;
  });
  await new Promise(setImmediate);
  expect(over).toBe(false);
  finish.open();
  await closed;
});

describe("attempts", () => {
  it.each([
    [2, 1, ["retry"]],
    [3, 1, ["park"]],
    // Never parked without a try, whatever a header claims about earlier attempts.
    [4, 1, ["park"]],
  ])("number %i of 3 is handled %i times if it fails", async (attempt, times, expected) => {
    let calls = 0;
    const { deliver, close, log } = session(() => {
      calls++;
      return fails();
    }, {});
    const { delivery: one, verbs } = delivery({}, attempt);
    await deliver(one);
    await close();
    expect([calls, verbs]).toEqual([times, expected]);
    if (attempt === 2) expect(log.of("delivery.retried")).toMatchObject([{ retryInMs: 7, attempt: 2 }]);
    else expect(log.of("delivery.parked")).toMatchObject([{ error: { code: "attempts-spent" } }]);
  });

  it("is spent by a handler that throws for a router without handlers, which is a mistake of its own", async () => {
    const { deliver, close } = session(() => Promise.reject(new ConfigError("no-handler", "it has no handlers")), {});
    const { delivery: one, verbs } = delivery();
    await deliver(one);
    await close();
    expect(verbs).toEqual(["park"]);
  });

  it("beyond the last one, only what has a handler is parked for them", async () => {
    const { deliver, close, log } = session(handled, { onUnknownType: "ignore" });
    const { delivery: one } = delivery({}, 4);
    await deliver({ ...one, message: createMessage({ ...one.message, type: "shop.Other" }) });
    await close();
    expect(log.of("delivery.ignored")).toHaveLength(1);
  });
});

describe("a place", () => {
  it.each(["on-success", "forward"] as const)(
    "is free again when the message is settled, or with forward before: %s",
    async (ack) => {
      const acked = gate();
      const { deliver, close, log } = session(handled, { ack });
      const [first, second] = [delivery({ ack: () => acked.opened }), delivery()];
      await deliver(first.delivery);
      await deliver(second.delivery);
      await log.until("delivery.handled", ack === "forward" ? 2 : 1);
      await new Promise(setImmediate);
      expect(log.of("delivery.received")).toHaveLength(ack === "forward" ? 2 : 1);
      acked.open();
      await log.until("delivery.acked", 2);
      await close();
    },
  );

  it("is one of five, unless told otherwise", async () => {
    const hold = gate();
    const all = Array.from({ length: 12 }, () => delivery());
    const { router, log } = world(
      async ({ deliver }, signal) => {
        for (const one of all) await deliver(one.delivery);
        await untilAborted(signal);
      },
      () => hold.opened,
    );
    await log.until("delivery.received", 5);
    await new Promise(setImmediate);
    expect(log.of("delivery.received")).toHaveLength(5);
    hold.open();
    await log.until("delivery.acked", 12);
    await router.stop();
  });
});

it("closes once, however often it is told to, and leaves no timer", async () => {
  const timers = new Set<() => void>();
  const schedule = (task: () => void) => {
    timers.add(task);
    return () => timers.delete(task);
  };
  const { close } = session(handled, { runtime: { ...manualRuntime(), schedule } });
  expect(close()).toBe(close());
  expect(timers.size).toBe(1);
  await close();
  expect(timers.size).toBe(0);
});

it("gives a message back when the router itself fails, and tells", async () => {
  const failpoint = () => Promise.reject(new Error("a bug of ours"));
  const { deliver, close, log } = session(handled, { runtime: { ...manualRuntime(), failpoint } });
  const { delivery: one, verbs } = delivery();
  await deliver(one);
  await close();
  expect(verbs).toEqual(["release"]);
  expect(log.of("router.failed")).toMatchObject([{ error: { message: "[unknown] a bug of ours" } }]);
});

describe("a store that goes away", () => {
  const away = (code: "store-unavailable" | "transaction-lost") => new PostboxError(code, "the connection is gone");
  /** Advances the clock past the pauses between tries until `done`. */
  const until = async (done: () => boolean, runtime: ReturnType<typeof manualRuntime>) => {
    while (!done()) await runtime.advance(1000);
  };

  it("before a message was begun is waited for, however long", async () => {
    let tries = 0;
    const { deliver, close, runtime } = session(async () => {
      if (++tries <= 20) throw away("store-unavailable");
      return "by-handler";
    }, {});
    const { delivery: one, verbs } = delivery();
    await deliver(one);
    await until(() => verbs.length > 0, runtime);
    expect([tries, verbs]).toEqual([21, ["ack"]]);
    await close();
  });

  it("four times while a message is handled, parks it", async () => {
    let tries = 0;
    const { deliver, close, runtime, log } = session(async () => {
      tries++;
      throw away("transaction-lost");
    }, {});
    const { delivery: one, verbs } = delivery();
    await deliver(one);
    await until(() => verbs.length > 0, runtime);
    expect([tries, verbs]).toEqual([4, ["park"]]);
    expect(log.of("delivery.parked")).toMatchObject([{ error: { code: "message-suspect" } }]);
    await close();
  });

  it("parks only the one that it went away under, whatever is handled beside it", async () => {
    const running = new Set<string>();
    const { deliver, close, runtime } = session(
      async ({ message }) => {
        running.add(message.id);
        try {
          await new Promise(setImmediate);
          // The lost store also ends every other transaction that is open at this moment.
          if (running.has("killer")) throw away("transaction-lost");
          return "by-handler";
        } finally {
          await new Promise(setImmediate);
          running.delete(message.id);
        }
      },
      { concurrency: 5 },
    );
    const all = ["a", "b", "killer", "c", "d"].map((id) => delivery({}, 1, id));
    for (const { delivery: each } of all) await deliver(each);
    await until(() => all.every(({ verbs }) => verbs.length > 0), runtime);
    expect(all.map(({ verbs }) => verbs)).toEqual([["ack"], ["ack"], ["park"], ["ack"], ["ack"]]);
    await close();
  });
});
