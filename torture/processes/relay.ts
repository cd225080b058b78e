// Carries what the producers have committed to the broker.
import { createRelay, exponential } from "postbox";
import { leaseMs, openStore, play, producersSchema, writeTroubles } from "./part.js";
import { senderOf } from "./transport.js";

await play(async (part, diary, busy) => {
  const { pool, store } = openStore(part, producersSchema(part.run), 4);
  const sender = senderOf(part);
  const tell = writeTroubles(diary);
  const relay = createRelay(store, sender, {
    leaseMs,
    publishTimeoutMs: 1_300,
    pollIntervalMs: 50,
    backoff: exponential({ initialMs: 50, maxMs: 500 }),
    telemetry(event) {
      if (event.name === "relay.read" || event.name === "message.sent") busy();
      tell(event);
    },
  });
  relay.start();
  return async () => {
    await relay.stop();
    await sender.close();
    await pool.end();
  };
});
