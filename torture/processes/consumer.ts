// Writes an effect of each message, in the transaction of its inbox. Now and then a handler fails.
import { createRouter, durableInbox, exponential, inbox, type Receiver, transaction } from "postbox";
import type { Diary } from "./diary.js";
import { type Busy, consumersSchema, leaseMs, openStore, play, writeTroubles } from "./part.js";
import { killerNote, postedEvent, sightingOf } from "./posting.js";
import { receiverOf } from "./transport.js";

const concurrency = 5;
const backoff = exponential({ initialMs: 50, maxMs: 500 });

await play(async (part, diary, busy) => {
  const { run, consumer = "billing" } = part;
  const schema = consumersSchema(run);
  const { pool, store } = openStore(part, schema, concurrency + 3);
  const timing = { leaseMs, pollIntervalMs: 100 };

  // What it sees of the others' effects tells in which order they were committed.
  const effect = `
    INSERT INTO ${schema}.effect (consumer, id, key, seen)
    SELECT $1, $2, $3, (SELECT count(*) FROM ${schema}.effect WHERE consumer = $1 AND key = $3)`;
  const router = createRouter(consumer, { concurrency, backoff, telemetry: writeTroubles(diary) })
    .use(transaction(store))
    .use(consumer === "billing" ? inbox(store, timing) : durableInbox(store, timing))
    .on(postedEvent(run, "even"), (_, context) => handle(context))
    .on(postedEvent(run, "odd"), (_, context) => handle(context));

  async function handle({ message, tx }: Handling): Promise<void> {
    await tx.query(effect, [consumer, message.id, message.key]);
    // In the middle of its transaction.
    if (message.headers.note === killerNote) process.kill(process.pid, "SIGKILL");
    if (Math.random() < 0.005) throw new Error("it fails now and then");
  }

  const receiver = receiverOf(part, backoff, (event) => {
    if (event.name === "transport.lost") diary.write({ what: "fault", kind: `receiver: ${event.error.message}` });
  });
  router.start(watched(receiver, diary, busy));
  return async () => {
    await router.stop();
    await pool.end();
  };
});

interface Handling {
  readonly message: {
    readonly id: string;
    readonly key?: string | undefined;
    readonly headers: Readonly<Record<string, string>>;
  };
  readonly tx: { query(text: string, values: unknown[]): Promise<unknown> };
}

/** Writes down what the broker hands over, before anybody else knows of it. */
function watched(receiver: Receiver, diary: Diary, busy: Busy): Receiver {
  const signals = new WeakSet<AbortSignal>();
  /** A group that gives a partition to another member delivers what was open there once more. */
  const watch = (signal: AbortSignal | undefined) => {
    if (signal === undefined || signals.has(signal)) return;
    signals.add(signal);
    signal.addEventListener("abort", () => diary.write({ what: "fault", kind: "deliveries were revoked" }));
  };
  return {
    ...receiver,
    receive: ({ consumer, events, deliver }, signal) =>
      receiver.receive(
        {
          consumer,
          events,
          deliver(delivery) {
            watch(delivery.signal);
            diary.write({ what: "delivered", consumer, message: sightingOf(delivery.message) });
            busy();
            return deliver(delivery);
          },
        },
        signal,
      ),
  };
}
