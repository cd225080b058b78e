import { constant, type Message, type RelayOptions, type Sender } from "postbox";
import type { Runtime } from "postbox/store";
import { TransportDownError } from "postbox/transport";
import { describe, expect } from "vitest";
import { faultySender } from "../faulty-sender.js";
import { gate } from "../gate.js";
import { testMessage, testMessages } from "../messages.js";
import { recordingSender } from "../recording-sender.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox, type StoreHarness } from "../store-suite/store-harness.js";
import { commit, relayOn, timing, whileRunning } from "./relay-run.js";

const innocents = ["1", "2", "3", "4", "5", "6"];
const messages = [...innocents.slice(0, 3), "killer", ...innocents.slice(3)].map((id) => testMessage(id, { key: id }));
const killerParked = { ...emptyBox, parked: [{ id: "killer", error: expect.stringContaining("[message-suspect]") }] };

export function suspectFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("suspects", () => {
    for (const order of ["key", "total"] as const) {
      const name = `a message that crashes its process is parked in the end, and all others are sent (${order})`;
      fact(name, "processes", async (harness) => {
        await commit(harness, ...messages);
        const sink = recordingSender();
        let deaths = 0;
        while (await dies(harness, sink, order)) if (++deaths > 10) break;
        expect(deaths).toBeGreaterThan(1);
        expect(deaths).toBeLessThanOrEqual(4);
        expect(new Set(sink.ids())).toEqual(new Set(innocents));
        expect(await harness.contents("outbox")).toEqual(killerParked);
      });
    }

    fact("a message that breaks the connection is parked, and all others are sent", async (harness) => {
      const inner = recordingSender({ keepsOrder: false });
      const sender = faultySender(inner, ({ id }) => (id === "killer" ? "lost" : undefined));
      await commit(harness, ...messages);
      const relay = relayOn(harness.store, sender, { backoff: constant(1) });
      await whileRunning(relay, async () => {
        // A message that is sent between two connection losses shows that the broker is not the cause.
        let more = 0;
        for (; relay.log.of("message.parked").length === 0 && more < 200; more++) {
          await commit(harness, testMessage(`more-${more}`));
          await relay.log.until("message.sent", more + 1);
        }
        await relay.log.until("message.parked");
        await relay.log.until("message.sent", innocents.length + more);
      });
      const sent = inner.ids().filter((id) => !id.startsWith("more"));
      expect(new Set(sent)).toEqual(new Set(innocents));
      expect(await harness.contents("outbox")).toEqual(killerParked);
    });

    for (const order of ["key", "total", "none"] as const) {
      fact(`a message that breaks the connection is parked even if it is the only one (${order})`, async (harness) => {
        const inner = recordingSender();
        const sender = faultySender(inner, ({ id }) => (id === "killer" ? "lost" : undefined));
        await commit(harness, testMessage("killer", { key: "k" }), testMessage("next", { key: "k" }));
        const relay = relayOn(harness.store, sender, { order, backoff: constant(1) });
        await whileRunning(relay, async () => {
          await relay.log.until("message.parked");
          await relay.log.until("message.sent");
        });
        expect(inner.ids()).toEqual(["next"]);
        expect(await harness.contents("outbox")).toEqual(killerParked);
      });
    }

    fact("a broker that drops every connection parks nothing", async (harness) => {
      const inner = recordingSender();
      const sender = faultySender(inner, (_, sentBefore) => (sentBefore < 40 ? "lost" : undefined));
      await commit(harness, ...messages);
      const relay = relayOn(harness.store, sender, { maxAttempts: 1, backoff: constant(1) });
      await whileRunning(relay, () => inner.until(messages.length));
      expect(await harness.contents("outbox")).toEqual(emptyBox);
      expect(relay.log.of("breaker.opened").length).toBeGreaterThan(5);
      expect(relay.log.of("breaker.closed")).toHaveLength(1);
    });

    fact("a process that restarts during an outage of the broker counts nothing", "processes", async (harness) => {
      await commit(harness, ...messages);
      const sink = recordingSender();
      await dies(harness, sink, "key");
      const away: Sender = {
        ...recordingSender(),
        async connect() {
          throw new TransportDownError("connect", "the broker is away, as planned");
        },
      };
      for (let restarts = 0; restarts < 5; restarts++) await diesWhen(harness, away, "relay.failed");
      const relay = relayOn(harness.another(), sink);
      await harness.advance(timing.leaseMs);
      await whileRunning(relay, async () => void (await relay.log.until("message.suspected")));
      expect(new Set(relay.log.of("message.suspected").map(({ crashes }) => crashes))).toEqual(new Set([1]));
    });

    fact("after a crash, only messages that may have been in flight are suspected", "processes", async (harness) => {
      const stuck = gate();
      const deadly: Sender = {
        ...recordingSender(),
        async send() {
          stuck.open();
          return new Promise(() => {});
        },
      };
      for (let n = 0; n < 4; n++) await commit(harness, ...testMessages(`m${n}`, 250));
      const { die } = await mortal(harness, deadly, "key", { maxInFlight: 5 });
      await stuck.opened;
      await die();
      const sink = recordingSender();
      const relay = relayOn(harness.another(), sink, { maxInFlight: 5 });
      await whileRunning(relay, () => sink.until(1000));
      const suspected = relay.log.of("message.suspected").length;
      expect(suspected).toBeGreaterThan(0);
      // Those in flight, and twice as many that may have been sent but not settled.
      expect(suspected).toBeLessThanOrEqual(15);
    });

    fact("messages that were appended after the take-over are not suspected", "processes", async (harness) => {
      const stuck = gate();
      const deadly: Sender = {
        ...recordingSender(),
        async send() {
          stuck.open();
          return new Promise(() => {});
        },
      };
      await commit(harness, testMessage("before"));
      const { die } = await mortal(harness, deadly, "key");
      await stuck.opened;
      await die();
      const sink = recordingSender();
      const relay = relayOn(harness.another(), sink);
      await whileRunning(relay, async () => {
        await sink.until(1);
        await commit(harness, ...testMessages("after", 20));
        await sink.until(21);
      });
      expect(relay.log.of("message.suspected").map(({ id }) => id)).toEqual(["before"]);
    });

    fact("neither a stop nor an ordinary failure suspects a message", async (harness) => {
      const inner = recordingSender();
      let refusals = 3;
      const sender = faultySender(inner, () => (refusals-- > 0 ? "failed" : undefined));
      await commit(harness, testMessage("1"), testMessage("2"));
      const first = relayOn(harness.store, sender, { backoff: constant(1) });
      await whileRunning(first, () => inner.until(2));
      await commit(harness, testMessage("3"));
      const second = relayOn(harness.another(), sender);
      await whileRunning(second, () => inner.until(3));
      expect([...first.log.of("message.suspected"), ...second.log.of("message.suspected")]).toEqual([]);
    });
  });
}

const left = ({ pending, wait }: { readonly pending: readonly unknown[]; readonly wait: readonly unknown[] }) =>
  pending.length + wait.length;

/**
 * Runs a relay in a process of its own, which crashes when it sends the poison message. Returns whether it crashed; if
 * not, everything is sent.
 */
async function dies<Tx>(harness: StoreHarness<Tx>, sink: Sender, order: "key" | "total"): Promise<boolean> {
  const sentKiller = gate();
  const deadly: Sender = {
    ...sink,
    async send(batch, settled, signal) {
      const at = batch.findIndex(({ id }: Message) => id === "killer");
      if (at === -1) return sink.send(batch, settled, signal);
      sentKiller.open();
      return new Promise(() => {});
    },
  };
  const { relay, die } = await mortal(harness, deadly, order);
  const outcome = await Promise.race([
    sentKiller.opened.then(() => true),
    relay.log.until("message.parked").then(() => false),
  ]);
  if (outcome) await die();
  else {
    // Does not rely on `relay.drained`: a total order may have reported it earlier, while another transaction was open.
    await expect.poll(async () => left(await harness.contents("outbox"))).toBe(0);
    await relay.stop();
  }
  return outcome;
}

async function diesWhen<Tx>(harness: StoreHarness<Tx>, sender: Sender, event: "relay.failed"): Promise<void> {
  const { relay, die } = await mortal(harness, sender, "key");
  await relay.log.until(event);
  await die();
}

async function mortal<Tx>(
  harness: StoreHarness<Tx>,
  sender: Sender,
  order: "key" | "total",
  options: RelayOptions = {},
) {
  const process = await harness.process?.();
  if (process === undefined) throw new Error("the feature 'processes' needs harness.process()");
  let dead = false;
  const runtime: Partial<Runtime> = {
    schedule(task, ms) {
      const timer = setTimeout(() => dead || task(), ms);
      return () => clearTimeout(timer);
    },
    failpoint: () => (dead ? new Promise(() => {}) : undefined),
  };
  const relay = relayOn(process.store, sender, { order, runtime, backoff: constant(1), ...options });
  relay.start();
  const die = async () => {
    dead = true;
    await process.kill();
    await harness.advance(timing.leaseMs);
  };
  return { relay, die };
}
