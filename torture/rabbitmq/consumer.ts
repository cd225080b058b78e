// Writes an effect of each message, in the transaction of its inbox. Now and then a handler fails.
import { createRouter, durableInbox, exponential, inbox, type Receiver, transaction } from "postbox";
import { rabbitmqReceiver } from "postbox/rabbitmq";
import type { Diary } from "./diary.js";
import { type Busy, consumersSchema, leaseMs, openStore, type Part, play, writeTroubles } from "./part.js";
import { postedEvent, sightingOf } from "./posting.js";

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
    if (Math.random() < 0.005) throw new Error("it fails now and then");
  }

  router.start(watched(receiverOf(part, diary), diary, busy));
  return async () => {
    await router.stop();
    await pool.end();
  };
});

interface Handling {
  readonly message: { readonly id: string; readonly key?: string | undefined };
  readonly tx: { query(text: string, values: unknown[]): Promise<unknown> };
}

function receiverOf({ broker, name, queue = "" }: Part, diary: Diary): Receiver {
  return rabbitmqReceiver({
    url: broker,
    queue,
    topology: "check",
    bindings: false,
    prefetch: 50,
    connectionName: name,
    heartbeatSeconds: 2,
    backoff,
    telemetry: (event) => {
      if (event.name === "transport.lost") diary.write({ what: "fault", kind: `receiver: ${event.error.message}` });
    },
  });
}

/** Writes down what the broker hands over, before anybody else knows of it. */
function watched(receiver: Receiver, diary: Diary, busy: Busy): Receiver {
  return {
    ...receiver,
    receive: ({ consumer, events, deliver }, signal) =>
      receiver.receive(
        {
          consumer,
          events,
          deliver(delivery) {
            diary.write({ what: "delivered", consumer, message: sightingOf(delivery.message) });
            busy();
            return deliver(delivery);
          },
        },
        signal,
      ),
  };
}
