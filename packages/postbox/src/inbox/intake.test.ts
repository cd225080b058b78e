import { type TelemetryLog, telemetryLog } from "@postbox/testkit";
import { constant } from "postbox";
import { expect, it } from "vitest";
import { PermanentError } from "../errors.js";
import { runtimeWith } from "../internal/runtime.js";
import { createMessage } from "../message/message.js";
import type { Delivery } from "../transport.js";
import type { Keeping } from "./bounded-inbox.js";
import { checkInbox } from "./inbox-options.js";
import { Intake } from "./intake.js";

function intakeInto(inbox: Keeping, log: TelemetryLog) {
  return new Intake({
    ...checkInbox("durableInbox", { batchSize: 2 }, 1_000),
    inbox,
    inOrder: true,
    brokerParks: true,
    onUnknownType: "park",
    kept: () => {},
    consumer: "billing",
    concurrency: 1,
    maxAttempts: 10,
    backoff: constant(60_000),
    telemetry: log.telemetry,
    runtime: runtimeWith(undefined),
  });
}

const messageOf = (id: string) => createMessage({ id, source: "/test", type: "test.Happened", data: new Uint8Array() });

it("a stop while the store is away gives back all that waits, and what waits to be taken", async () => {
  const log = telemetryLog();
  const away = () => Promise.reject(new Error("the store is away"));
  const intake = intakeInto({ keep: away, setAside: away }, log);
  const released: string[] = [];
  const deliveryOf = (id: string): Delivery => ({
    message: messageOf(id),
    attempt: 1,
    ack: () => Promise.reject(new Error("nobody has stored it")),
    retry: () => Promise.reject(new Error("nothing is wrong with it")),
    park: () => Promise.reject(new Error("nothing is wrong with it")),
    release: async () => void released.push(id),
  });
  const [stop, end] = [new AbortController(), new AbortController()];
  const running = intake.run(stop.signal, end.signal, new AbortController().signal);
  // Delivers as a receiver does: each message once the previous one is taken. It ends after its last message.
  const receiving = (async () => {
    for (let at = 0; at < 10 && !stop.signal.aborted; at++) await intake.take(deliveryOf(`m${at}`));
  })().finally(() => end.abort());
  await log.until("router.failed");
  // The intake is full by now, and the receiver waits.
  await new Promise((resolve) => setImmediate(resolve));
  stop.abort();
  await receiving;
  await running;
  expect(released).toEqual(released.map((_, at) => `m${at}`));
  expect(released.length).toBeGreaterThanOrEqual(4);
});

it("parks a message that the store can never take, and stores the others", async () => {
  const log = telemetryLog();
  const stored: string[] = [];
  const keep: Keeping["keep"] = async (arrivals) => {
    // A database rejects the whole statement if one value is too long for its column.
    if (arrivals.some(({ id }) => id === "m2")) throw new PermanentError("m2 is too long", { code: "message-invalid" });
    stored.push(...arrivals.map(({ id }) => id));
    return arrivals.map(() => "new");
  };
  const intake = intakeInto({ keep, setAside: () => Promise.reject(new Error("not the store's")) }, log);
  const ended: string[] = [];
  const end = new AbortController();
  const running = intake.run(new AbortController().signal, end.signal, new AbortController().signal);
  for (const id of ["m1", "m2", "m3", "m4"]) {
    await intake.take({
      message: messageOf(id),
      attempt: 1,
      ack: async () => void ended.push(`ack ${id}`),
      retry: () => Promise.reject(new Error("nothing is wrong with it")),
      park: async () => void ended.push(`park ${id}`),
      release: async () => void ended.push(`release ${id}`),
    });
  }
  await log.until("delivery.stored", 3);
  end.abort();
  await running;
  expect(stored).toEqual(["m1", "m3", "m4"]);
  expect(ended).toEqual(["ack m1", "park m2", "ack m3", "ack m4"]);
  expect(log.of("delivery.parked")).toMatchObject([{ id: "m2", error: { code: "message-invalid" } }]);
});
