import { constant, type Message, type Sender } from "postbox";
import { describe, expect } from "vitest";
import { faultySender, type SendFault } from "../faulty-sender.js";
import { gate } from "../gate.js";
import { testMessage, testMessages } from "../messages.js";
import { recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox } from "../store-suite/store-harness.js";
import { anHourMs, commit, relayOn, whileRunning } from "./relay-run.js";

const inKey = (key: string, ...ids: readonly string[]) => ids.map((id) => testMessage(id, { key }));

export function failureFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("failing", () => {
    for (const keepsOrder of [true, false]) {
      const suffix = keepsOrder ? "" : ", on a sender that does not keep order";

      fact(`a failed message holds its key, other keys continue, and it is sent first${suffix}`, async (harness) => {
        const inner = recordingSender({ keepsOrder });
        const refusals = new Map([["a1", 2]]);
        const sender = faultySender(inner, ({ id }) => {
          const left = refusals.get(id) ?? 0;
          refusals.set(id, left - 1);
          return left > 0 ? "failed" : undefined;
        });
        await commit(harness, ...inKey("a", "a1", "a2", "a3"), ...inKey("b", "b1", "b2"), testMessage("keyless"));
        const relay = relayOn(harness.store, sender, { backoff: constant(anHourMs) });
        await whileRunning(relay, async () => {
          await inner.until(3);
          await relay.log.until("message.held", 2);
          await commit(harness, ...inKey("a", "a4"), ...inKey("b", "b3"));
          await inner.until(4);
          await relay.log.until("message.held", 3);
          expect((await harness.contents("outbox")).wait).toEqual(["a1", "a2", "a3", "a4"]);
          await harness.advance(anHourMs);
          await relay.log.until("message.failed", 2);
          expect(inner.ids()).toHaveLength(4);
          await harness.advance(anHourMs);
          await inner.until(8);
          await commit(harness, ...inKey("a", "a5"));
          await inner.until(9);
        });
        const ofKey = (key: string) => inner.messages.filter((message) => message.key === key).map(({ id }) => id);
        expect(ofKey("a")).toEqual(["a1", "a2", "a3", "a4", "a5"]);
        expect(ofKey("b")).toEqual(["b1", "b2", "b3"]);
        expect(await harness.contents("outbox")).toEqual(emptyBox);
      });

      fact(`a rejected message is parked with its reason, and its key continues${suffix}`, async (harness) => {
        const inner = recordingSender({ keepsOrder });
        const sender = faultySender(inner, ({ id }) => (id === "a1" ? "rejected" : undefined));
        await commit(harness, ...inKey("a", "a1", "a2", "a3"));
        const relay = relayOn(harness.store, sender);
        await whileRunning(relay, () => inner.until(2));
        expect(inner.ids()).toEqual(["a2", "a3"]);
        const { pending, wait, holds, parked } = await harness.contents("outbox");
        expect({ pending, wait, holds }).toEqual({ pending: [], wait: [], holds: [] });
        expect(parked).toEqual([{ id: "a1", error: expect.stringContaining("was rejected, as planned") }]);
      });

      fact(`a dropped message leaves an entry in the audit, and its key continues${suffix}`, async (harness) => {
        const inner = recordingSender({ keepsOrder });
        const sender = faultySender(inner, ({ id }) => (id === "a1" || id === "a3" ? "dropped" : undefined));
        await commit(harness, ...inKey("a", "a1", "a2", "a3", "a4"));
        const relay = relayOn(harness.store, sender, { onPark: "hold", onSent: "keep" });
        await whileRunning(relay, async () => {
          await inner.until(2);
          await relay.log.until("message.dropped", 2);
          await relay.log.until("message.sent", 2);
        });
        expect(inner.ids()).toEqual(["a2", "a4"]);
        const { done, ...rest } = await harness.contents("outbox");
        expect([[...done].sort(), rest]).toMatchObject([
          ["a2", "a4"],
          { pending: [], wait: [], parked: [], holds: [] },
        ]);
        expect(relay.log.of("message.failed")).toEqual([]);
        const entries = await harness.store.admin.audit();
        expect(entries.flatMap(({ ids }) => ids).sort()).toEqual(["a1", "a3"]);
        for (const entry of entries) {
          expect(entry).toMatchObject({ action: "drop", by: "relay", reason: "its sender dropped it: publish-failed" });
        }
      });

      fact(`the audit forgets drops after 30 days, but no operator's change${suffix}`, async (harness) => {
        const inner = recordingSender({ keepsOrder });
        const relay = relayOn(
          harness.store,
          faultySender(inner, () => "dropped"),
        );
        const { admin } = harness.store;
        await admin.pause({ by: "ann" });
        await admin.resume({ by: "ann" });
        await commit(harness, testMessage("old"));
        await whileRunning(relay, async () => void (await relay.log.until("message.dropped", 1)));
        await harness.advance(31 * 86_400_000);
        await commit(harness, testMessage("new"));
        await whileRunning(relay, async () => void (await relay.log.until("message.dropped", 2)));
        const entries = await admin.audit();
        expect(entries.map(({ action, ids }) => [action, ...ids])).toEqual([["drop", "new"], ["resume"], ["pause"]]);
      });

      fact(
        `a message that waits without fault spends no attempt, and its key waits behind it${suffix}`,
        async (harness) => {
          const inner = recordingSender({ keepsOrder });
          let tries = 0;
          const sender = faultySender(inner, ({ id }) => (id === "a1" && ++tries <= 5 ? "waiting" : undefined));
          await commit(harness, ...inKey("a", "a1", "a2", "a3"), ...inKey("b", "b1"));
          const relay = relayOn(harness.store, sender, { maxAttempts: 1, backoff: constant(0) });
          await whileRunning(relay, () => inner.until(4));
          expect(inner.ids().filter((id) => id !== "b1")).toEqual(["a1", "a2", "a3"]);
          expect(relay.log.of("message.failed").map(({ attempt }) => attempt)).toEqual([0, 0, 0, 0, 0]);
          expect(await harness.contents("outbox")).toEqual(emptyBox);
        },
      );

      fact(
        `a message is parked after maxAttempts attempts, and its key continues in order${suffix}`,
        async (harness) => {
          const inner = recordingSender({ keepsOrder });
          let tries = 0;
          const sender = faultySender(inner, ({ id }) => {
            if (id !== "a1") return undefined;
            tries++;
            return "failed";
          });
          await commit(harness, ...inKey("a", "a1", "a2", "a3"));
          const relay = relayOn(harness.store, sender, { maxAttempts: 3, backoff: constant(0) });
          await whileRunning(relay, () => inner.until(2));
          expect(tries).toBe(3);
          expect(inner.ids()).toEqual(["a2", "a3"]);
          expect((await harness.contents("outbox")).parked).toHaveLength(1);
        },
      );
    }

    for (const order of ["total", "none"] as const) {
      fact(`dropped and waiting messages, with order ${order}`, async (harness) => {
        const inner = recordingSender();
        let tries = 0;
        const sender = faultySender(inner, ({ id }) => {
          if (id === "a1") return "dropped";
          return id === "a2" && ++tries <= 5 ? "waiting" : undefined;
        });
        await commit(harness, ...inKey("a", "a1", "a2", "a3"));
        const relay = relayOn(harness.store, sender, { order, maxAttempts: 1, backoff: constant(0) });
        await whileRunning(relay, async () => {
          await inner.until(2);
          await relay.log.until("message.sent", 2);
        });
        expect(order === "total" ? inner.ids() : inner.ids().sort()).toEqual(["a2", "a3"]);
        expect(relay.log.of("message.dropped")).toMatchObject([{ id: "a1" }]);
        expect(await harness.contents("outbox")).toEqual(emptyBox);
        expect(await harness.store.admin.audit()).toMatchObject([{ action: "drop", ids: ["a1"] }]);
      });
    }

    for (const keepsOrder of [true, false]) {
      const suffix = keepsOrder ? "" : ", on a sender that does not keep order";
      fact(
        `an error of the sender over one message fails that message, without an outage${suffix}`,
        async (harness) => {
          const inner = recordingSender({ keepsOrder });
          const sender: Sender = {
            ...inner,
            async send(batch, settled, signal) {
              // An aborted operation of the sender's own: the relay has aborted no signal.
              if (batch.some(({ id }) => id === "bad")) throw new DOMException("cannot read properties", "AbortError");
              await inner.send(batch, settled, signal);
            },
          };
          const good = Array.from({ length: 20 }, (_, index) => testMessage(`good-${index}`, { key: `${index % 5}` }));
          await commit(harness, ...good.slice(0, 10), ...inKey("k", "bad", "behind"), ...good.slice(10));
          const relay = relayOn(harness.store, sender, { maxAttempts: 2, backoff: constant(1) });
          await whileRunning(relay, async () => {
            await relay.log.until("message.parked");
            await relay.log.until("message.sent", 21);
          });
          expect(relay.log.of("breaker.opened")).toEqual([]);
          expect(inner.ids().sort()).toEqual([...good.map(({ id }) => id), "behind"].sort());
          for (const key of ["0", "1", "2", "3", "4"]) {
            const sent = inner.messages.filter((message) => message.key === key).map(({ id }) => id);
            expect(sent).toEqual(good.filter((message) => message.key === key).map(({ id }) => id));
          }
          const { parked, ...rest } = await harness.contents("outbox");
          const { parked: _, ...empty } = emptyBox;
          expect(rest).toEqual(empty);
          expect(parked).toEqual([{ id: "bad", error: expect.stringContaining("cannot read properties") }]);
        },
      );
    }

    fact("a message held back behind a failure is not sent before it, even if the sender throws", async (harness) => {
      const inner = recordingSender();
      let isFirst = true;
      const sender: Sender = {
        ...inner,
        async send(batch, settled, signal) {
          if (isFirst && batch.length === 4) {
            isFirst = false;
            settled(0, { status: "failed", error: new Error("not now") });
            throw new TypeError("cannot encode x");
          }
          await inner.send(batch, settled, signal);
        },
      };
      await commit(harness, ...inKey("k", "k1", "k2", "k3"), testMessage("x"));
      const relay = relayOn(harness.store, sender, { backoff: constant(1) });
      await whileRunning(relay, async () => void (await relay.log.until("message.sent", 4)));
      expect(inner.ids().filter((id) => id.startsWith("k"))).toEqual(["k1", "k2", "k3"]);
    });

    for (const order of ["key", "total"] as const) {
      fact(`anything that a sender throws or reports as an error fails one message (${order})`, async (harness) => {
        const inner = recordingSender();
        const thrown = strange();
        const sender: Sender = {
          ...inner,
          async send(batch, settled, signal) {
            for (const [index, { id }] of batch.entries()) {
              const at = Number(/^(?:throws|reports) (\d+)$/.exec(id)?.[1] ?? -1);
              if (id.startsWith("throws")) throw thrown[at];
              if (id.startsWith("reports")) settled(index, { status: "failed", error: thrown[at] as Error });
              else await inner.send([batch[index] as Message], (_, outcome) => settled(index, outcome), signal);
            }
          },
        };
        const bad = thrown.flatMap((_, at) => [testMessage(`throws ${at}`), testMessage(`reports ${at}`)]);
        await commit(harness, ...bad, testMessage("good"));
        const relay = relayOn(harness.store, sender, { order, maxAttempts: 1, maxInFlight: 5, backoff: constant(1) });
        await whileRunning(relay, async () => {
          await relay.log.until("message.parked", bad.length);
          await relay.log.until("message.sent");
        });
        expect(inner.ids()).toEqual(["good"]);
        const { parked } = await harness.contents("outbox");
        expect(parked.map(({ id }) => id).sort()).toEqual(bad.map(({ id }) => id).sort());
      });
    }

    fact("a key with a long queue does not keep others from being sent", async (harness) => {
      const held = gate();
      const inner = recordingSender({ keepsOrder: false });
      const sender: Sender = {
        ...inner,
        async send(batch, settled, signal) {
          if (batch.some(({ key }) => key === "hot")) await held.opened;
          await inner.send(batch, settled, signal);
        },
      };
      const hot = inKey("hot", ...Array.from({ length: 60 }, (_, n) => `hot-${n}`));
      await commit(harness, ...hot);
      const relay = relayOn(harness.store, sender, { batchSize: 5, publishTimeoutMs: 900 });
      await whileRunning(relay, async () => {
        // One after the other: each read may bring more of the hot key, until there would be no room for other keys.
        for (let n = 0; n < 20; n++) {
          await commit(harness, testMessage(`other-${n}`, { key: `other-${n}` }));
          await relay.log.until("message.sent", n + 1);
        }
        expect(inner.ids().every((id) => id.startsWith("other"))).toBe(true);
        held.open();
        await relay.log.until("message.sent", 80);
      });
      // The first one may have timed out meanwhile, and was sent again.
      expect([...new Set(inner.ids())].filter((id) => id.startsWith("hot"))).toEqual(hot.map(({ id }) => id));
    });

    fact("a confirmation after the timeout counts: the message is not sent again", async (harness) => {
      const late = gate();
      const sent: string[] = [];
      const sender: Sender = {
        name: "slow",
        keepsOrder: false,
        async send(batch, settled, signal) {
          for (const { id } of batch) sent.push(id);
          void late.opened.then(() => confirmAll(batch, settled));
          await new Promise<void>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        },
      };
      await commit(harness, ...inKey("a", "a1", "a2"), testMessage("alone"));
      const relay = relayOn(harness.store, sender, { publishTimeoutMs: 100, backoff: constant(anHourMs) });
      await whileRunning(relay, async () => {
        await relay.log.until("breaker.opened");
        expect(sent.sort()).toEqual(["a1", "alone"]);
        late.open();
        await relay.log.until("message.sent", 2);
      });
      expect(sent.sort()).toEqual(["a1", "alone"]);
      expect((await harness.contents("outbox")).pending).toEqual(["a2"]);
    });

    fact(
      "a broker that confirms more slowly than the timeout gets more time, and everything is settled",
      async (harness) => {
        let timeouts = 0;
        const sender: Sender = {
          name: "slow",
          keepsOrder: false,
          async send(batch, settled, signal) {
            // Confirms when the third attempt times out, or later.
            await new Promise<void>((resolve, reject) => {
              if (timeouts >= 2) return resolve();
              signal.addEventListener("abort", () => {
                timeouts++;
                reject(signal.reason);
              });
            });
            confirmAll(batch, settled);
          },
        };
        await commit(harness, testMessage("a"), testMessage("b"));
        const asked: number[] = [];
        const schedule = (task: () => void, ms: number) => {
          asked.push(ms);
          const timer = setTimeout(task, ms);
          return () => clearTimeout(timer);
        };
        const runtime = { schedule };
        const relay = relayOn(harness.store, sender, { publishTimeoutMs: 50, backoff: constant(1), runtime });
        await whileRunning(relay, async () => void (await relay.log.until("message.sent", 2)));
        const codes = relay.log.of("breaker.opened").map(({ error }) => error.code);
        expect(codes).toEqual(["publish-timeout", "publish-timeout"]);
        expect(asked).toEqual(expect.arrayContaining([50, 100]));
        expect(await harness.contents("outbox")).toEqual(emptyBox);
      },
    );

    fact("a failure among a thousand keys holds up only its own key", async (harness) => {
      const inner = recordingSender({ keepsOrder: false });
      const sender = faultySender(inner, ({ id }) => (id === "k500-0" ? "failed" : undefined));
      const round = (n: number) => Array.from({ length: 1000 }, (_, k) => testMessage(`k${k}-${n}`, { key: `k${k}` }));
      await commit(harness, ...round(0), ...round(1));
      const relay = relayOn(harness.store, sender, { backoff: constant(anHourMs) });
      await whileRunning(relay, async () => {
        await inner.until(1998);
        await relay.log.until("message.held");
        await relay.log.until("message.sent", 1998);
      });
      expect(inner.messages.filter(({ key }) => key === "k500")).toEqual([]);
      const { pending, wait, holds } = await harness.contents("outbox");
      expect({ pending, wait, holds }).toEqual({ pending: [], wait: ["k500-0", "k500-1"], holds: ["k500"] });
    });

    fact("onPark: hold keeps the key behind a parked message until an operator releases it", async (harness) => {
      const inner = recordingSender();
      const sender = faultySender(inner, ({ id }) => (id === "a2" ? "rejected" : undefined));
      await commit(harness, ...inKey("a", "a1", "a2", "a3"), ...inKey("b", "b1"));
      const relay = relayOn(harness.store, sender, { onPark: "hold" });
      await whileRunning(relay, async () => {
        await relay.log.until("message.held");
        await commit(harness, ...inKey("a", "a4"), ...inKey("b", "b2"));
        await relay.log.until("message.held", 2);
        await inner.until(3);
        await harness.advance(anHourMs);
      });
      expect(inner.ids().sort()).toEqual(["a1", "b1", "b2"]);
      const { pending, wait, holds, parked } = await harness.contents("outbox");
      expect({ pending, wait, holds }).toEqual({ pending: [], wait: ["a3", "a4"], holds: ["a"] });
      expect(parked.map(({ id }) => id)).toEqual(["a2"]);
    });

    fact("maxAttempts 1: the first failure parks, and the messages behind it are sent", async (harness) => {
      const inner = recordingSender();
      const sender = faultySender(inner, ({ id }) => (id === "a1" ? "failed" : undefined));
      await commit(harness, ...inKey("a", "a1", "a2", "a3"));
      const relay = relayOn(harness.store, sender, { maxAttempts: 1 });
      await whileRunning(relay, () => inner.until(2));
      expect(inner.ids()).toEqual(["a2", "a3"]);
    });

    fact("isPermanent decides which failures are permanent", async (harness) => {
      const sender = faultySender(recordingSender(), () => "failed");
      await commit(harness, testMessage("m"));
      const relay = relayOn(harness.store, sender, { isPermanent: (error) => error.message.includes("as planned") });
      await whileRunning(relay, async () => void (await relay.log.until("relay.settled")));
      expect((await harness.contents("outbox")).parked).toHaveLength(1);
    });

    fact("an outage spends no attempt and parks nothing", async (harness) => {
      const inner = recordingSender();
      const sender = faultySender(inner, (_, sentBefore) => (sentBefore < 10 ? "down" : undefined));
      await commit(harness, ...inKey("a", "a1", "a2"));
      const relay = relayOn(harness.store, sender, { maxAttempts: 1, backoff: constant(1) });
      await whileRunning(relay, () => inner.until(2));
      expect(relay.log.of("relay.failed").length).toBeGreaterThanOrEqual(4);
      expect(relay.log.of("message.failed")).toEqual([]);
      expect(await harness.contents("outbox")).toEqual(emptyBox);
    });

    fact("nothing is sent during an outage before the delay is over", async (harness) => {
      let calls = 0;
      const inner = recordingSender();
      const sender = faultySender({ ...inner, send: async (...args) => inner.send(...args) }, () => {
        calls++;
        return "down";
      });
      await commit(harness, testMessage("1"));
      const relay = relayOn(harness.store, sender, { backoff: constant(anHourMs) });
      await whileRunning(relay, async () => {
        await relay.log.until("relay.failed");
        await commit(harness, testMessage("2"));
        await relay.log.until("relay.read", 2);
        await relay.log.until("relay.failed");
      });
      expect(calls).toBe(1);
      expect((await harness.contents("outbox")).pending).toEqual(["1", "2"]);
    });

    fact("batches that time out together count as one failure of the broker", async (harness) => {
      const allGivenUp = gate();
      let givenUp = 0;
      const sender: Sender = {
        name: "silent",
        keepsOrder: false,
        send: (_, __, signal) =>
          new Promise<void>((_, reject) =>
            signal.addEventListener("abort", () => {
              if (++givenUp === 10) allGivenUp.open();
              reject(signal.reason);
            }),
          ),
      };
      await commit(harness, ...testMessages("m", 10));
      const failures: number[] = [];
      const backoff = (attempt: number) => {
        failures.push(attempt);
        return anHourMs;
      };
      const relay = relayOn(harness.store, sender, { batchSize: 1, maxInFlight: 10, publishTimeoutMs: 100, backoff });
      await whileRunning(relay, () => allGivenUp.opened);
      expect(relay.log.of("breaker.opened")).toHaveLength(1);
      expect(relay.log.of("relay.failed")).toHaveLength(1);
      expect(failures).toEqual([1]);
    });

    fact("the first report of a message counts", async (harness) => {
      const inner = recordingSender();
      const babbling = {
        ...inner,
        async send(...[messages, settled, signal]: Parameters<typeof inner.send>) {
          await inner.send(messages, settled, signal);
          for (const index of messages.keys()) settled(index, { status: "failed", error: new Error("after all") });
        },
      };
      await commit(harness, ...inKey("a", "a1", "a2"));
      const relay = relayOn(harness.store, babbling);
      await whileRunning(relay, async () => void (await relay.log.until("message.sent", 2)));
      expect(relay.log.of("message.failed")).toEqual([]);
      expect(await harness.contents("outbox")).toEqual(emptyBox);
    });

    for (const cut of ["lost", "unconfirmed"] satisfies SendFault[]) {
      fact(`a connection lost in the middle (${cut}) loses nothing and keeps the order`, async (harness) => {
        const inner = recordingSender();
        const sender = faultySender(inner, ({ id }, sentBefore) => (id === "a2" && sentBefore < 3 ? cut : undefined));
        await commit(harness, ...inKey("a", "a1", "a2", "a3"));
        const relay = relayOn(harness.store, sender, { backoff: constant(1) });
        await whileRunning(relay, () => inner.until(cut === "lost" ? 3 : 4));
        const twice = cut === "lost" ? [] : ["a2"];
        expect(inner.ids()).toEqual(["a1", ...twice, "a2", "a3"]);
        expect(relay.log.of("message.failed")).toEqual([]);
      });
    }

    fact("a sender that never answers times out, and is tried again", async (harness) => {
      let calls = 0;
      const inner = recordingSender({ before: () => (++calls === 1 ? new Promise(() => {}) : undefined) });
      await commit(harness, testMessage("m"));
      const relay = relayOn(harness.store, inner, { publishTimeoutMs: 30, backoff: constant(1) });
      await whileRunning(relay, () => inner.until(1));
      expect(inner.ids()).toEqual(["m"]);
      expect(relay.log.of("relay.failed")[0]?.error.code).toBe("publish-timeout");
    });
  });
}

function confirmAll(batch: readonly Message[], settled: Parameters<Sender["send"]>[1]): void {
  for (const index of batch.keys()) settled(index, { status: "sent" });
}

/** Values that careless code may throw. */
function strange(): unknown[] {
  const thrower = () => {
    throw new Error("even this");
  };
  const cyclic: { errors: unknown[] } = { errors: [] };
  cyclic.errors.push(cyclic);
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return [
    null,
    undefined,
    "a text",
    42,
    Symbol("s"),
    Object.create(null),
    { toString: thrower },
    Object.defineProperty(new Error("x"), "message", { get: thrower }),
    Object.assign(new Error("x"), { message: Symbol("s") }),
    Object.defineProperty(new Error("x"), "code", { get: thrower }),
    cyclic,
    proxy,
  ];
}
