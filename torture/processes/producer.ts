// Writes a posting and its messages in one transaction, several side by side, until enough have committed. Some
// transactions roll back, some commit late. A successor goes on where this one died.
import { createHash } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import type { Sighting } from "@postbox/testkit/history";
import { createOutbox } from "postbox";
import { now, readDiary } from "./diary.js";
import { openStore, play, producersSchema } from "./part.js";
import { digestOf, halves, postedEvent } from "./posting.js";

const workers = 3;
const keyCount = 200;

class TakenBack extends Error {}

await play(async (part, diary, busy) => {
  const { name, run, quota = 0 } = part;
  const schema = producersSchema(run);
  const { pool, store } = openStore(part, schema, workers + 1);
  const outbox = createOutbox(store, { source: `/${name}` });
  const events = halves.map((half) => postedEvent(run, half));

  const before = readDiary(part.diary);
  const appends = before.flatMap((entry) => (entry.what === "appended" ? [entry.tx] : []));
  const ended = new Set(before.flatMap((entry) => (entry.what === "committed" ? [entry.tx] : [])));
  let committed = appends.filter((tx) => ended.has(tx)).length;
  let count = before.length;

  async function one(number: number): Promise<void> {
    const tx = `${name}-${process.pid}-${number}`;
    const chance = drawn(`${part.seed} ${name} ${number}`);
    const rollsBack = chance() < 0.08;
    const [early, late] = [chance() < 0.03 ? 150 : 0, chance() < 0.05 ? 150 : 0];
    const burst = chance() < 0.02 ? 60 : 0;
    const drafts = Array.from({ length: 1 + Math.floor(chance() * 3) + burst }, (_, index) => {
      const key = Math.floor(chance() * keyCount);
      const size = chance() < 0.01 ? 60_000 : Math.floor(chance() * 300);
      const data = { account: `account-${key}`, amount: index, text: "grün €".repeat(size / 6) };
      const event = events[key % 2] as (typeof events)[number];
      return { event, data, note: `${tx} ${index}` };
    });
    try {
      await store.transaction(async (client) => {
        await client.query(`INSERT INTO ${schema}.posting (tx) VALUES ($1)`, [tx]);
        await pause(early);
        const messages = drafts.map(({ event, data, note }) => event.message(data, { headers: { note } }));
        const at = now();
        const published = await outbox.in(client).publishAll(messages);
        // Before the commit, so that none is there of which nothing is written.
        for (const [index, { event, data, note }] of drafts.entries()) {
          const digest = digestOf(event.type, note, Buffer.from(JSON.stringify(data)));
          const message: Sighting = { id: published[index]?.id as string, key: data.account, digest };
          diary.write({ what: "appended", tx, box: "outbox", message }, at);
        }
        busy();
        await pause(late);
        if (rollsBack) throw new TakenBack();
      });
      diary.write({ what: "committed", tx });
      committed += drafts.length;
    } catch (error) {
      diary.write({ what: error instanceof TakenBack ? "rolled-back" : "unknown", tx });
      // A database that is away for a moment.
      if (!(error instanceof TakenBack)) await pause(50);
    }
  }

  let stopped = false;
  const working = Array.from({ length: workers }, async () => {
    while (committed < quota && !stopped) {
      await one(count++);
      // Slowly enough to live through what befalls the others.
      await pause(10);
    }
  });
  void Promise.all(working).then(() => process.exit(0));
  return async () => {
    stopped = true;
    await Promise.all(working);
    await pool.end();
  };
});

/** Chance that a text decides. */
function drawn(text: string): () => number {
  let count = 0;
  return () => createHash("sha256").update(`${text} ${count++}`).digest().readUInt32BE() / 2 ** 32;
}
