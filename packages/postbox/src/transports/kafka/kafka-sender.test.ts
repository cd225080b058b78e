import { randomUUID } from "node:crypto";
import { describeOnEach } from "@postbox/testkit/servers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createMessage, type Message, type MessageInput } from "../../message/message.js";
import { silent } from "../../telemetry/console.js";
import type { Outcome, Sender } from "../../transport.js";
import type { KafkaCluster } from "./client.js";
import { openCluster } from "./connection.js";
import { code } from "./error-codes.js";
import { type KafkaClient, kafkajsClient, kafkaSender } from "./index.js";
import { createTopics } from "./topology.js";

const never = new AbortController().signal;

async function outcomesOf(sender: Sender, messages: readonly Message[]): Promise<readonly Outcome[]> {
  const outcomes: Outcome[] = [];
  await sender.send(
    messages,
    (index, outcome) => {
      outcomes[index] = outcome;
    },
    never,
  );
  return outcomes;
}

describe("the options of a sender", () => {
  it.each([
    ["amqp://localhost", "kafka://"],
    ["kafka://", "kafka://"],
    ["kafka://one:9092,two:x", "kafka://"],
  ])("refuse the URL %s", (url, expected) => {
    expect(() => kafkaSender({ url })).toThrow(expected);
  });

  it("name no password", () => {
    expect(() => kafkaSender({ url: "kafka://me:secret@:x" })).toThrow(expect.not.stringContaining("secret"));
  });
});

describeOnEach("kafka", ({ url }) => {
  let admin: KafkaCluster;
  beforeAll(async () => {
    admin = await openCluster({ url }, () => {});
  });
  afterAll(() => admin.close());

  async function topicOf(partitions = 1): Promise<string> {
    const topic = `sender-${randomUUID()}`;
    await createTopics(admin, [topic], { partitions });
    return topic;
  }
  const messageTo = (topic: string, id: string, more: Partial<MessageInput> = {}) =>
    createMessage({ id, source: "/s", type: `${topic}.A`, topic, ...more });

  async function idsOf(topic: string): Promise<string[]> {
    const { nodes, topics } = await admin.metadata([topic]);
    const from = (topics[0]?.partitions ?? []).map(({ partition }) => ({ topic, partition, offset: 0 }));
    const read = await admin.fetch(nodes[0] as number, from, { maxWaitMs: 100, maxBytes: 10_000_000 });
    return read.flatMap(({ records }) => records.map(({ headers }) => String(headers.ce_id)));
  }

  it("reports a missing topic as unroutable, and decides as configured", async () => {
    const topic = await topicOf();
    const missing = `missing-${randomUUID()}`;
    for (const [onUnroutable, expected] of [
      ["park", { status: "failed", error: { code: "unroutable" } }],
      ["drop", { status: "dropped", error: { code: "unroutable" } }],
      ["wait", { status: "failed", uncounted: true, error: { code: "unroutable" } }],
    ] as const) {
      await using sender = kafkaSender({ url, onUnroutable });
      const outcomes = await outcomesOf(sender, [messageTo(missing, "m1"), messageTo(topic, "m2")]);
      expect(outcomes[0]).toMatchObject(expected);
      expect(outcomes[1]).toEqual({ status: "sent" });
    }
  });

  it("finds a topic that was made after it was missed", async () => {
    const topic = `late-${randomUUID()}`;
    await using sender = kafkaSender({ url });
    expect(await outcomesOf(sender, [messageTo(topic, "m1")])).toMatchObject([{ status: "failed" }]);
    await createTopics(admin, [topic], { partitions: 1 });
    await expect.poll(() => outcomesOf(sender, [messageTo(topic, "m1")])).toEqual([{ status: "sent" }]);
  });

  it("rejects what is larger than its topic accepts, and a name that no topic can have", async () => {
    const topic = await topicOf();
    await using sender = kafkaSender({ url });
    const large = { ...messageTo(topic, "m1"), data: new Uint8Array(1_048_588) };
    const outcomes = await outcomesOf(sender, [large, messageTo("größe", "m2"), messageTo(topic, "m3")]);
    expect(outcomes).toMatchObject([
      { status: "rejected", error: { code: "message-too-large" } },
      { status: "rejected", error: { code: "message-invalid" } },
      { status: "sent" },
    ]);
  });

  it("keeps a key in order over several topics: nothing follows a failure", async () => {
    const [one, two] = [await topicOf(2), await topicOf(2)];
    const missing = `missing-${randomUUID()}`;
    await using sender = kafkaSender({ url });
    const key = { key: "k" };
    const outcomes = await outcomesOf(sender, [
      messageTo(one, "m1", key),
      messageTo(two, "m2", key),
      messageTo(missing, "m3", key),
      messageTo(one, "m4", key),
      messageTo(two, "m5", { key: "other" }),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(["sent", "sent", "failed", "failed", "sent"]);
    expect(outcomes[3]).toMatchObject({ uncounted: true });
    expect([await idsOf(one), (await idsOf(two)).sort()]).toEqual([["m1"], ["m2", "m5"]]);
  });

  it("sends compressed batches", async () => {
    const topic = await topicOf(3);
    await using sender = kafkaSender({ url, compression: "gzip" });
    const messages = Array.from({ length: 100 }, (_, n) => messageTo(topic, `m${n}`, { data: Buffer.alloc(1000) }));
    expect(await outcomesOf(sender, messages)).toEqual(messages.map(() => ({ status: "sent" })));
    expect((await idsOf(topic)).sort()).toEqual(messages.map(({ id }) => id).sort());
  });

  describe("an idempotent producer", () => {
    /** The client, with a hook around each batch that is produced. */
    function hooked(
      produce: (send: () => ReturnType<KafkaCluster["produce"]>, count: number) => ReturnType<KafkaCluster["produce"]>,
    ): KafkaClient {
      const client = kafkajsClient();
      return {
        name: "hooked",
        async open(settings) {
          const cluster = await client.open(settings);
          const send = cluster.produce.bind(cluster);
          let count = 0;
          cluster.produce = (...given) => produce(() => send(...given), count++);
          return cluster;
        },
      };
    }

    it("stores a batch once whose answer was lost", async () => {
      const topic = await topicOf();
      const client = hooked(async (send, count) => {
        const answer = await send();
        if (count > 0) return answer;
        const { TransportDownError } = await import("../../errors.js");
        throw new TransportDownError("send", "the answer was lost");
      });
      await using sender = kafkaSender({ url, client, telemetry: silent });
      const messages = Array.from({ length: 50 }, (_, n) => messageTo(topic, `m${n}`, { key: "k" }));
      expect(await outcomesOf(sender, messages)).toEqual(messages.map(() => ({ status: "sent" })));
      expect(await outcomesOf(sender, [messageTo(topic, "last", { key: "k" })])).toEqual([{ status: "sent" }]);
      expect(await idsOf(topic)).toEqual([...messages.map(({ id }) => id), "last"]);
    });

    it("loses nothing when answers are lost while many calls send, and keeps the order of each key", async () => {
      const topic = await topicOf(3);
      const { TransportDownError } = await import("../../errors.js");
      const client = hooked(async (send, count) => {
        const answer = await send();
        if (count % 3 !== 1) return answer;
        throw new TransportDownError("send", "the answer was lost");
      });
      await using sender = kafkaSender({ url, client, telemetry: silent });
      const ids: string[] = [];
      const calls = Array.from({ length: 60 }, (_, call) => {
        const messages = Array.from({ length: 5 }, (_, n) => messageTo(topic, `${call}-${n}`, { key: `k${n}` }));
        ids.push(...messages.map(({ id }) => id));
        return new Promise((resolve) => setTimeout(resolve, call * 3)).then(() => outcomesOf(sender, messages));
      });
      const outcomes = (await Promise.all(calls)).flat();
      expect(outcomes.every(({ status }) => status === "sent")).toBe(true);
      const stored = await idsOf(topic);
      expect([...stored].sort()).toEqual(ids.sort());
      for (const n of ["0", "1", "2", "3", "4"]) {
        const ofKey = stored.filter((id) => id.endsWith(`-${n}`)).map((id) => Number(id.split("-")[0]));
        expect(ofKey).toEqual([...ofKey].sort((a, b) => a - b));
      }
    });

    it.each([
      ["has lost the order of its batches", code.outOfOrderSequence],
      ["is not known any more", code.unknownProducer],
      ["is fenced", code.invalidProducerEpoch],
    ])("that %s goes on with a new identity", async (_, answer) => {
      const topic = await topicOf();
      const client = hooked(async (send, count) =>
        count === 1 ? [{ topic, partition: 0, code: answer }] : await send(),
      );
      await using sender = kafkaSender({ url, client, telemetry: silent });
      for (const id of ["m1", "m2", "m3"]) {
        expect(await outcomesOf(sender, [messageTo(topic, id, { key: "k" })])).toEqual([{ status: "sent" }]);
      }
      expect(await idsOf(topic)).toEqual(["m1", "m2", "m3"]);
    });

    it("reports a partition that stays without a leader as unavailable, and sends to the others", async () => {
      const topic = await topicOf(2);
      const client = hooked(async (send) => {
        const answers = await send();
        return answers.map((each) => (each.partition === 0 ? { ...each, code: code.notLeader } : each));
      });
      await using sender = kafkaSender({ url, client, telemetry: silent });
      const messages = Array.from({ length: 12 }, (_, n) => messageTo(topic, `m${n}`, { key: `k${n}` }));
      const outcomes = await outcomesOf(sender, messages);
      const scopes = messages.map((message) => sender.scopeOf?.(message));
      expect(new Set(scopes)).toEqual(new Set([`${topic}/0`, `${topic}/1`]));
      expect(outcomes.map(({ status }) => status)).toEqual(
        scopes.map((scope) => (scope === `${topic}/0` ? "unavailable" : "sent")),
      );
    });

    it("finds out which record of a batch the broker refuses", async () => {
      const topic = await topicOf();
      const client: KafkaClient = {
        name: "hooked",
        async open(settings) {
          const cluster = await kafkajsClient().open(settings);
          const send = cluster.produce.bind(cluster);
          cluster.produce = async (node, identity, batches, compression) => {
            const ids = batches.flatMap(({ records }) => records.map(({ headers }) => String(headers.ce_id)));
            if (!ids.includes("m3")) return send(node, identity, batches, compression);
            return batches.map(({ topic: of, partition }) => ({ topic: of, partition, code: code.invalidRecord }));
          };
          return cluster;
        },
      };
      await using sender = kafkaSender({ url, client, telemetry: silent });
      const messages = ["m1", "m2", "m3", "m4", "m5"].map((id) =>
        messageTo(topic, id, { key: id === "m4" ? "m3" : id }),
      );
      const outcomes = await outcomesOf(sender, messages);
      expect(outcomes.map(({ status }) => status)).toEqual(["sent", "sent", "rejected", "failed", "sent"]);
      expect(await idsOf(topic)).toEqual(["m1", "m2", "m5"]);
    });
  });
});
