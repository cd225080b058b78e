import type { Message } from "postbox";
import type { Settlement } from "postbox/store";
import { testMessage } from "../messages.js";
import { commit, type OwnedBox, ownBox, type What } from "./box-access.js";
import type { StoreHarness } from "./store-harness.js";

/** The operator in these facts. */
export const ann = { by: "ann", reason: "a fact" } as const;

const inAnHour = 3_600_000;

/** A box that a relay owns, with ways to put messages where an operator finds them. */
export interface OperatedBox extends OwnedBox {
  /** Appends messages and parks them with this error. */
  park(error: string, ...messages: readonly Message[]): Promise<void>;
  /** Appends messages and lets each fail, with a retry in an hour. */
  fail(error: string, ...messages: readonly Message[]): Promise<void>;
  /** Appends messages and keeps them as sent. */
  finish(...messages: readonly Message[]): Promise<void>;
}

export async function operatedBox<Tx>(harness: StoreHarness<Tx>): Promise<OperatedBox> {
  const owned = await ownBox(harness);
  const bring = async (messages: readonly Message[], what: What) => {
    await commit(harness, ...messages);
    const rows = (await owned.read(2000)).filter(({ message }) => messages.some(({ id }) => id === message.id));
    await owned.box.settle(
      owned.lanes,
      rows.map((row) => ({ ...what, row }) as Settlement),
      { keep: true },
    );
  };
  return {
    ...owned,
    park: (error, ...messages) => bring(messages, { to: "parked", attempts: 3, error }),
    fail: (error, ...messages) => bring(messages, { to: "wait", attempts: 1, retryInMs: inAnHour, error }),
    finish: (...messages) => bring(messages, { to: "sent" }),
  };
}

/** One message in each place, named after it. */
export async function oneOfEach<Tx>(harness: StoreHarness<Tx>): Promise<OperatedBox> {
  const box = await operatedBox(harness);
  await box.finish(testMessage("done"));
  await box.park("never", testMessage("parked"));
  await box.fail("not now", testMessage("waiting"));
  await commit(harness, testMessage("pending"), scheduledMessage("scheduled", inAnHour));
  return box;
}

/** A message that is due `ms` from now. */
export function scheduledMessage(id: string, ms: number, key?: string): Message {
  const deliverAt = new Date(Date.now() + ms);
  return testMessage(id, key === undefined ? { deliverAt } : { deliverAt, key });
}

/** The message as it is sent and stored. */
export function withoutSchedule({ deliverAt: _, scheduleKey: __, ...message }: Message): Message {
  return message;
}
