import { testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { expect, it, onTestFinished } from "vitest";
import { rabbitmqStages, sending } from "../../../fixtures/rabbitmq-stage.js";
import { TransportDownError } from "../../errors.js";
import type { Outcome } from "../../transport.js";
import { fromAmqp } from "./amqp-message.js";
import { type RabbitmqSenderOptions, rabbitmqSender } from "./index.js";

/** The number of messages in a queue once it stops growing. Call it after the last publish. */
async function settledCount(arrived: () => Promise<number>): Promise<number> {
  for (let last = -1; ; ) {
    const now = await arrived();
    if (now === last) return now;
    last = now;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** What is specific to a RabbitMQ sender: its exchanges, its headers and its credentials. */
describeOnEach("rabbitmq", ({ url }) => {
  const { stage, way } = rabbitmqStages(url);

  function sender(options: Partial<RabbitmqSenderOptions> = {}) {
    const made = rabbitmqSender({ url, ...options });
    onTestFinished(() => made.close());
    return made;
  }
  const unaborted = new AbortController().signal;

  it("close waits for earlier sends; a later send opens a connection that closes by itself", async () => {
    const { message } = await stage();
    const by = sender();
    const before = sending(by, [message("m1")]);
    await by.close();
    expect(before.outcomes).toEqual([{ status: "sent" }]);
    expect(by.health().status).toBe("idle");
    const after = sending(by, [message("m2")]);
    await after.sent;
    expect(after.outcomes).toEqual([{ status: "sent" }]);
    expect(by.health().status).toBe("connected");
    await expect.poll(() => by.health().status, { timeout: 20_000 }).toBe("idle");
  });

  it("tells which message is at fault when an exchange is deleted under it", async () => {
    const [one, two] = [await stage(), await stage()];
    const by = sender();
    await sending(by, [one.message("m1"), two.message("m2")]).sent;
    await two.channel.deleteExchange(two.topic);
    const { outcomes, sent } = sending(by, [one.message("m3"), two.message("m4"), one.message("m5")]);
    await sent;
    expect(outcomes[1]).toMatchObject({ status: "failed", error: { code: "unroutable" } });
    for (const outcome of [outcomes[0], outcomes[2]]) {
      if (outcome?.status !== "sent") expect(outcome).toMatchObject({ status: "failed", uncounted: true });
    }
    const again = sending(by, [one.message("m3"), one.message("m5")]);
    await again.sent;
    expect(again.outcomes).toEqual([{ status: "sent" }, { status: "sent" }]);
  });

  it("does not take an exchange that it may not publish to for a broker that is down", async () => {
    const [one, two] = [await stage(), await stage()];
    await two.channel.deleteExchange(two.topic);
    await two.channel.assertExchange(two.topic, "topic", { internal: true });
    const by = sender();
    const { outcomes, sent } = sending(by, [one.message("m1"), two.message("m2"), one.message("m3")]);
    await sent;
    expect(outcomes[1]).toMatchObject({ status: "failed", error: { code: "publish-failed" } });
    expect(String((outcomes[1] as { error: Error }).error)).toMatch(/may not publish message m2/);
    for (const outcome of [outcomes[0], outcomes[2]]) {
      if (outcome?.status !== "sent") expect(outcome).toMatchObject({ status: "failed", uncounted: true });
    }
  });

  it("reports a message as sent if the broker confirms it after the abort, so that it is not sent again", async () => {
    const { queue, channel, message } = await stage();
    const by = sender();
    await sending(by, [message("first")]).sent;
    const stop = new AbortController();
    const reported: unknown[] = ["sent"];
    const messages = Array.from({ length: 300 }, (_, index) => message(`m${index}`));
    const settled = (_: number, { status }: Outcome) => {
      reported.push(status);
      // Abort midway: other messages are published and not confirmed yet.
      stop.abort(new Error("too late"));
    };
    await expect(by.send(messages, settled, stop.signal)).rejects.toThrow("too late");
    const arrived = async () => (await channel.checkQueue(queue)).messageCount;
    await expect.poll(async () => [reported.length, new Set(reported).size]).toEqual([await settledCount(arrived), 1]);
  });

  it("makes the exchanges of events", async () => {
    const { event, topic, channel } = await stage();
    await channel.deleteExchange(topic);
    await sender().setup([event]);
    await channel.checkExchange(topic);
  });

  it("takes no header for one that the broker acts upon", async () => {
    const { topic, event, queue, channel } = await stage();
    const headers = { CC: "elsewhere", BCC: "elsewhere", "x-received-from": "me", plain: "yes" };
    const { outcomes, sent } = sending(sender(), [testMessage("m1", { type: event.type, topic, headers })]);
    await sent;
    expect(outcomes).toEqual([{ status: "sent" }]);
    const raw = await channel.get(queue, { noAck: true });
    if (raw === false) throw new Error("nothing arrived");
    const read = fromAmqp(raw as never, { exchange: topic, unprefixed: false, maxMessageBytes: 1000 });
    expect(read.headers).toEqual(headers);
  });

  it("says what may be wrong when it is not let into a virtual host, and may be later", async () => {
    const refused = sender({ url: `${url}/no-such-host` }).connect?.(unaborted);
    await expect(refused).rejects.toBeInstanceOf(TransportDownError);
    await expect(refused).rejects.toThrow(/no virtual host of that name/);
  });

  it("shows no part of a URL that is none", () => {
    for (const bad of ["amqp://u:very secret@h:99999", "amqp:/u:very-secret@h"]) {
      const made = () => rabbitmqSender({ url: bad });
      expect(made).toThrow("[option-invalid]");
      expect(made).not.toThrow("secret");
    }
  });

  it("asks no longer for credentials than it may take to connect", async () => {
    const by = sender({ connectTimeoutMs: 100, credentials: () => new Promise(() => {}) });
    await expect(by.connect?.(unaborted)).rejects.toThrow(/credentials/);
  });

  it("asks for credentials anew with each connection", async () => {
    const { message } = await stage();
    const { username, password } = new URL(url);
    let asked = 0;
    const through = await way();
    const bare = new URL(through.url);
    [bare.username, bare.password] = ["", ""];
    const by = sender({
      url: bare.href,
      credentials: async () => {
        asked++;
        return { username: username || "guest", password: password || "guest" };
      },
    });
    await sending(by, [message("m1")]).sent;
    through.cut();
    through.mend();
    await sending(by, [message("m2")]).sent.catch(() => {});
    await sending(by, [message("m3")]).sent;
    expect(asked).toBeGreaterThanOrEqual(2);
  });
});
