import { type Outcome, TransportDownError } from "postbox/transport";
import { describe, expect } from "vitest";
import { patienceMs, patiently } from "../patience.js";
import { expectNothingMore } from "./nothing-more.js";
import { type TransportFact, testEvent } from "./transport-facts.js";

/** What a Sender reports. */
export function sendingFacts(fact: TransportFact): void {
  const statuses = (outcomes: readonly (Outcome | undefined)[]) => outcomes.map((outcome) => outcome?.status);

  describe("send", () => {
    fact("reports each message once", async ({ send, message, consume }) => {
      const messages = Array.from({ length: 50 }, (_, index) => message(`m${index}`));
      expect(statuses(await send(...messages))).toEqual(messages.map(() => "sent"));
      const received = await consume().take(50);
      expect(new Set(received.map((delivery) => delivery.message.id)).size).toBe(50);
    });

    fact("accepts a second call before the first has returned", async ({ harness, message, consume }) => {
      const sender = harness.sender();
      const reported: string[] = [];
      const { signal } = new AbortController();
      const sending = ["a", "b", "c"].map((name) =>
        sender.send(
          [message(`${name}1`), message(`${name}2`)],
          (index) => reported.push(`${name}${index + 1}`),
          signal,
        ),
      );
      await Promise.all(sending);
      const expected = ["a1", "a2", "b1", "b2", "c1", "c2"];
      expect([...reported].sort()).toEqual(expected);
      const received = await consume().take(6);
      expect(received.map((delivery) => delivery.message.id).sort()).toEqual(expected);
    });

    fact("accepts an empty batch", async ({ send }) => {
      const sending = send();
      expect(await patiently(sending, () => "an answer")).toEqual([]);
    });

    fact("never reports an unroutable message as sent", "unroutable", async ({ send, message, event, consume }) => {
      const unwanted = testEvent(event.topic, "Unwanted");
      const outcomes = await send(
        message("m1"),
        message("m2", { type: unwanted.type, topic: unwanted.topic }),
        message("m3", { type: unwanted.type, topic: `${event.topic}.nowhere` }),
        message("m4"),
      );
      expect(statuses([outcomes[0], outcomes[3]])).toEqual(["sent", "sent"]);
      for (const outcome of outcomes.slice(1, 3)) {
        expect(outcome?.status).not.toBe("sent");
        expect(outcome).toMatchObject({ error: { code: "unroutable" } });
      }
      const received = await consume().take(2);
      expect(received.map((delivery) => delivery.message.id)).toEqual(["m1", "m4"]);
    });

    fact("handles unroutable messages as configured, by message", "onUnroutable", async (stage) => {
      const { harness, message, event, consume } = stage;
      const unwanted = { type: `${event.topic}.Unwanted` };
      const nowhere = { topic: `${event.topic}.nowhere` };
      const age = (id: string) => ({
        time: new Date(Date.now() - (id === "waits long" ? 3_600_000 : 0)).toISOString(),
      });
      const choices: Record<string, () => unknown> = {
        park: () => "park",
        drop: () => "drop",
        wait: () => "wait",
        "waits long": () => "wait",
        throws: () => {
          throw new Error("no idea");
        },
        "answers nothing": () => undefined,
        "answers too late": async () => "drop",
        "throws too late": () => Promise.reject(new Error("no idea")),
      };
      const sender = harness.sender({ onUnroutable: ({ id }) => choices[id.split(",")[0] as string]?.() as "park" });
      const messages = [
        ...Object.keys(choices).map((id) => message(id, { ...unwanted, ...age(id) })),
        message("routed"),
        ...Object.keys(choices).map((id) => message(`${id}, nowhere`, { ...nowhere, ...age(id) })),
      ];
      const outcomes = new Map<string, Outcome>();
      const report = (index: number, outcome: Outcome) => outcomes.set(messages[index]?.id as string, outcome);
      await sender.send(messages, report, new AbortController().signal);
      expect(outcomes.get("routed")).toEqual({ status: "sent" });
      for (const where of ["", ", nowhere"]) {
        const of = (id: string) => outcomes.get(id + where);
        const error = { code: "unroutable" };
        expect(of("park")).toMatchObject({ status: "failed", error });
        expect(of("park")).not.toHaveProperty("uncounted");
        expect(of("drop")).toMatchObject({ status: "dropped", error });
        expect(of("wait")).toMatchObject({ status: "failed", error, uncounted: true });
        expect(of("waits long")).toMatchObject({ status: "failed", error, uncounted: true });
        const delay = (id: string) => (of(id) as { readonly retryInMs: number }).retryInMs;
        expect(delay("waits long")).toBeGreaterThan(10 * delay("wait"));
        for (const id of ["throws", "answers nothing", "answers too late", "throws too late"]) {
          expect(of(id)).toMatchObject({ status: "rejected", error: { code: "message-invalid" } });
        }
        expect(String((of("throws") as { error: Error }).error)).toContain("no idea");
      }
      expect((await consume().next()).message.id).toBe("routed");
    });

    fact(
      "keeping order, sends nothing of a key behind a drop that is not stored yet",
      "onUnroutable",
      async (stage) => {
        const { harness, message, event, consume } = stage;
        const unwanted = { type: `${event.topic}.Unwanted` };
        const messages = ["m1", "m2", "m3"].map((id) => message(id, { key: "k", ...(id === "m2" && unwanted) }));
        const outcomes: (Outcome | undefined)[] = messages.map(() => undefined);
        const sender = harness.sender({ onUnroutable: "drop" });
        await sender.send(messages, (index, outcome) => (outcomes[index] = outcome), new AbortController().signal);
        expect(statuses(outcomes)).toEqual(["sent", "dropped", sender.keepsOrder ? "failed" : "sent"]);
        const sent = sender.keepsOrder ? ["m1"] : ["m1", "m3"];
        expect((await consume().take(sent.length)).map((delivery) => delivery.message.id)).toEqual(sent);
      },
    );

    fact("rejects messages that are too large, and sends the rest", "maxMessageBytes", async (stage) => {
      const { harness, send, message, consume } = stage;
      const data = new Uint8Array((harness.maxMessageBytes ?? 0) + 1);
      const outcomes = await send(message("m1"), message("m2", { data }), message("m3"));
      expect(statuses(outcomes)).toEqual(["sent", "rejected", "sent"]);
      expect(outcomes[1]).toMatchObject({ error: { code: "message-too-large" } });
      const received = await consume().take(2);
      expect(received.map((delivery) => delivery.message.id)).toEqual(["m1", "m3"]);
    });

    fact("rejects messages that cannot be encoded, and sends the rest", async ({ send, message, consume }) => {
      const broken = {
        ...message("m2"),
        get data(): Uint8Array {
          throw new Error("these data cannot be read");
        },
      };
      const outcomes = await send(message("m1"), broken, message("m3"));
      expect(statuses(outcomes)).toEqual(["sent", "rejected", "sent"]);
      expect(String((outcomes[1] as { error: Error }).error)).toContain("these data cannot be read");
      const received = await consume().take(2);
      expect(received.map((delivery) => delivery.message.id)).toEqual(["m1", "m3"]);
    });

    fact("rejects messages whose route throws or is invalid, and sends the rest", "routes", async (stage) => {
      const { harness, message, consume } = stage;
      const routes: Record<string, () => unknown> = {
        m2: () => {
          throw new Error("no tenant");
        },
        m3: () => undefined,
        m4: () => ({ exchange: 7 }),
      };
      const sender = harness.sender({ route: (id, usual) => (routes[id] ?? usual)() });
      const messages = ["m1", "m2", "m3", "m4", "m5"].map((id) => message(id));
      const outcomes: (Outcome | undefined)[] = messages.map(() => undefined);
      const { signal } = new AbortController();
      await sender.send(messages, (index, outcome) => (outcomes[index] = outcome), signal);
      expect(statuses(outcomes)).toEqual(["sent", "rejected", "rejected", "rejected", "sent"]);
      expect(String((outcomes[1] as { error: Error }).error)).toContain("no tenant");
      const received = await consume().take(2);
      expect(received.map((delivery) => delivery.message.id)).toEqual(["m1", "m5"]);
    });

    fact("declares keepsOrder as claimed", async ({ harness, features }) => {
      expect(harness.sender().keepsOrder).toBe(features.keepsOrder);
    });

    fact("holds back what follows a failure in its key", "keepsOrder", async (stage) => {
      const { features, send, message, event, consume } = stage;
      const broken = {
        ...message("m1", { key: "k" }),
        get data(): Uint8Array {
          throw new Error("these data cannot be read");
        },
      };
      const outcomes = await send(
        features.unroutable ? message("m1", { key: "k", topic: `${event.topic}.nowhere` }) : broken,
        message("m2", { key: "k" }),
        message("m3", { key: "other" }),
        message("m4", { key: "k" }),
        message("m5"),
      );
      const sent = statuses(outcomes).map((status) => status === "sent");
      expect(sent).toEqual([false, false, true, false, true]);
      for (const held of [1, 3]) expect(outcomes[held]).toMatchObject({ status: "failed", uncounted: true });
      const consumer = consume();
      const received = await consumer.take(2);
      expect(received.map((delivery) => delivery.message.id)).toEqual(["m3", "m5"]);
      await expectNothingMore(stage, consumer);
    });

    fact("gives up when aborted", async ({ harness, message }) => {
      const reported: number[] = [];
      const sending = harness.sender().send([message("m1")], (index) => reported.push(index), AbortSignal.abort());
      await expect(sending).rejects.toThrow();
      expect(reported).toEqual([]);
    });

    fact(
      "rejects and reports nothing during an outage of the broker, and works again after it",
      "outage",
      async (stage) => {
        const { harness, message, send, consume } = stage;
        if (harness.down === undefined || harness.up === undefined) throw new Error("outage needs down() and up()");
        const sender = harness.sender();
        const reported: number[] = [];
        await harness.down();
        const sending = sender.send([message("m1")], (index) => reported.push(index), AbortSignal.timeout(patienceMs));
        await expect(sending).rejects.toBeInstanceOf(TransportDownError);
        await expect(sending).rejects.toMatchObject({ code: "transport-down", during: "connect" });
        expect(reported).toEqual([]);
        await harness.up();
        expect(statuses(await send(message("m2")))).toEqual(["sent"]);
        expect((await consume().next()).message.id).toBe("m2");
      },
    );
  });
}
