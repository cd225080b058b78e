import { randomBytes } from "node:crypto";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { type Cuttable, cuttable } from "@postbox/testkit/servers";
import { type Actor, createActor } from "./actor.js";
import { makeTables, type RunTables } from "./database.js";
import { type Entry, openDiary, readDiary } from "./diary.js";
import { groupOf, kafkaTopics } from "./kafka-topics.js";
import { type Consumer, consumers, type Part, type Role } from "./part.js";
import type { Fault } from "./plan.js";
import { type Half, halves } from "./posting.js";
import type { RunQueues } from "./queues.js";
import { billingQueue, ledgerQueue, rabbitmqQueues } from "./rabbitmq-queues.js";
import { isKafka } from "./transport.js";

export interface StageOptions {
  readonly database: string;
  readonly broker: string;
  readonly seed: number;
  /** How many messages to commit, at least. */
  readonly messages: number;
}

/** Everything that a run has: its tables, its queues, its processes, and what these have written down. */
export interface Stage {
  readonly folder: string;
  readonly tables: RunTables;
  readonly queues: RunQueues;
  readonly cast: ReadonlyMap<string, Actor>;
  /** Resolves when it is over, and whoever it befell is back. */
  befall(fault: Fault): Promise<void>;
  diaries(): Entry[][];
  close(): Promise<void>;
}

export async function openStage({ database, broker, seed, messages }: StageOptions): Promise<Stage> {
  const run = `torture_${randomBytes(4).toString("hex")}`;
  const folder = mkdtempSync(join(tmpdir(), `${run}-`));
  const diaryOf = (name: string) => join(folder, `${name}.jsonl`);
  const tables = await makeTables(database, run);
  const accepted = openDiary(diaryOf("broker"));
  const queues = isKafka(broker)
    ? await kafkaTopics(broker, run, consumers, accepted)
    : await rabbitmqQueues(broker, run, accepted);
  /** Kafka divides the keys by itself. In RabbitMQ, each process of `ledger` has a queue with one half of them. */
  const queueOf = (consumer: Consumer, half: Half) => {
    if (isKafka(broker)) return groupOf(run, consumer);
    return consumer === "billing" ? billingQueue(run) : ledgerQueue(run, half);
  };
  const diary = openDiary(diaryOf("stage"));
  const cast = new Map<string, Actor>();
  const ways = new Map<string, Cuttable>();

  async function engage(role: Role, own: string, more: Partial<Part>): Promise<void> {
    const way = await cuttable(broker);
    ways.set(own, way);
    // Its name on the database is this run's alone.
    const part = { name: `${run}-${own}`, run, database, broker: way.url, diary: diaryOf(own), seed, ...more };
    cast.set(own, createActor(role, part, join(folder, `${own}.log`)));
  }
  for (const [n, half] of halves.entries()) {
    await engage("producer", `producer-${n}`, { quota: Math.ceil(messages / halves.length) });
    await engage("relay", `relay-${n}`, {});
    await engage("consumer", `billing-${n}`, { consumer: "billing", queue: queueOf("billing", half) });
    await engage("consumer", `ledger-${n}`, { consumer: "ledger", queue: queueOf("ledger", half) });
  }

  return {
    folder,
    tables,
    queues,
    cast,
    async befall({ kind, whom, forMs }) {
      const [actor, way] = [cast.get(whom) as Actor, ways.get(whom) as Cuttable];
      diary.write({ what: "fault", kind: `${kind} ${whom}` });
      switch (kind) {
        case "kill":
          await actor.die();
          await pause(forMs);
          return actor.start();
        case "pause":
          return actor.pause(forMs);
        case "deafen":
          way.swallow();
          await pause(forMs);
          way.cut();
          return way.mend();
        case "cut":
          way.cut();
          await pause(forMs);
          return way.mend();
        case "terminate":
          return tables.terminate(actor.part.name);
      }
    },
    diaries: () => ["stage", "broker", ...cast.keys()].map((name) => readDiary(diaryOf(name))),
    async close() {
      for (const actor of cast.values()) await actor.kill();
      for (const way of ways.values()) way.close();
      await queues.remove();
      await tables.remove();
    },
  };
}
