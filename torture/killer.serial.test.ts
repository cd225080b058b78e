import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeOnEach } from "@postbox/testkit/servers";
import { silent } from "postbox";
import { kafkaSender } from "postbox/kafka";
import { createMessage } from "postbox/transport";
import { beforeAll, expect, inject, it } from "vitest";
import { createActor } from "./processes/actor.js";
import { makeTables } from "./processes/database.js";
import { openDiary } from "./processes/diary.js";
import { groupOf, kafkaTopics } from "./processes/kafka-topics.js";
import { type Consumer, consumers } from "./processes/part.js";
import { killerNote, topicOf } from "./processes/posting.js";

describeOnEach("kafka", ({ url: broker }) => {
  const database = inject("servers").found.findLast(({ service }) => service === "postgres")?.url;
  // The processes run what is built.
  beforeAll(() => {
    execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-b", "torture"], { stdio: "inherit" });
  });

  it.skipIf(database === undefined).for<Consumer>(consumers)(
    "a message that kills each process of %s is parked, and its neighbours are handled once",
    { timeout: 3 * 60_000 },
    async (consumer) => {
      const run = `torture_${randomBytes(4).toString("hex")}`;
      const folder = mkdtempSync(join(tmpdir(), `${run}-`));
      const diary = (name: string) => join(folder, `${name}.jsonl`);
      const tables = await makeTables(database as string, run);
      const topics = await kafkaTopics(broker, run, [consumer], openDiary(diary("broker")));
      const queue = groupOf(run, consumer);
      const shared = { run, database: database as string, broker, seed: 1, consumer, queue };
      const actors = [0, 1].map((n) => {
        const part = { ...shared, name: `${run}-${n}`, diary: diary(`${n}`) };
        return createActor("consumer", part, join(folder, `${n}.log`));
      });
      try {
        await using sender = kafkaSender({ url: broker, telemetry: silent });
        const topic = topicOf(run, "even");
        const messages = Array.from({ length: 200 }, (_, n) => {
          const data = { account: `account-${n % 20}`, amount: n, text: "" };
          return createMessage({
            id: `m${n}`,
            source: "/killer",
            type: `${topic}.Posted`,
            topic,
            key: data.account,
            headers: { note: n === 77 ? killerNote : "harmless" },
            data: Buffer.from(JSON.stringify(data)),
          });
        });
        await sender.send(messages, () => {}, new AbortController().signal);
        let starts = 0;
        await expect
          .poll(
            async () => {
              // Whoever is killed is replaced.
              for (const actor of actors) {
                if (actor.plays) continue;
                actor.start();
                starts++;
              }
              const { effects, unsent, kept } = await tables.counts();
              return [effects, unsent + kept, await topics.depth()];
            },
            { timeout: 150_000, interval: 250 },
          )
          .toEqual([199, 0, 0]);
        // Two that were not killed, and several deaths of one or the other.
        expect(starts).toBeGreaterThan(3);
        const { effects, inbox } = await tables.remains();
        expect(inbox).toMatchObject([{ id: "m77", status: "parked" }]);
        expect(new Set(effects.map(({ id }) => id)).size).toBe(199);
      } finally {
        for (const actor of actors) await actor.kill();
        await topics.remove();
        await tables.remove();
        rmSync(folder, { recursive: true });
      }
    },
  );
});
