import {
  type BaseContext,
  createOutbox,
  type Message,
  PermanentError,
  PostboxError,
  type Receiver,
  type Store,
  timeout,
} from "postbox";
import { defineMiddleware, type Middleware, type Next } from "postbox/middleware";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { testMessage } from "../messages.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { emptyBox } from "../store-suite/store-harness.js";
import { strangeErrors } from "../strange-errors.js";
import {
  box,
  consumer,
  consuming,
  type InboxMode,
  Keyed,
  orders,
  Placed,
  Unknown,
  untilEffects,
  untilEmpty,
} from "./inbox-run.js";

const ann = { by: "ann" };

/** What both kinds of inbox promise. */
export function handlingFacts<Tx>(fact: StoreFact<Tx>, mode: InboxMode): void {
  describe(`behind ${mode}`, () => {
    fact("a message is handled, with what it writes and publishes in one transaction", async (harness) => {
      const { broker, publisher } = orders();
      const { log, start, stop } = consuming(harness, { mode });
      const { id: placed } = await publisher.publish(Placed, { order: "1" }, { extensions: { correlationid: "c" } });
      start(broker.receiver());
      await log.until("delivery.handled");
      await untilEmpty(harness);
      await stop();
      expect(await harness.effects()).toEqual(["1"]);
      expect((await harness.contents(box)).done).toEqual([placed]);
      const [invoice] = (await harness.store.admin.list()).messages;
      const [details] = await harness.store.admin.get(invoice?.id ?? "");
      expect(details?.message.extensions).toEqual({ causationid: placed, correlationid: "c" });
      expect(broker.depth(consumer)).toBe(0);
    });

    fact("is acknowledged after its transaction has committed, and not before", async (harness) => {
      const acked: (readonly string[])[] = [];
      const log: string[] = [];
      const receiver: Receiver = {
        name: "one",
        receive: async ({ deliver }, signal) => {
          await deliver({
            message: testMessage("m", { type: Placed.type, data: new TextEncoder().encode('{"order":"1"}') }),
            attempt: 1,
            async ack() {
              const { pending, done } = await harness.contents(box);
              acked.push([...(await harness.effects()), ...pending, ...done]);
              log.push("acked");
            },
            retry: async () => void log.push("retried"),
            park: async () => void log.push("parked"),
            release: async () => void log.push("released"),
          });
          await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
        },
      };
      const run = consuming(harness, { mode });
      run.start(receiver);
      await run.log.until("delivery.acked");
      await untilEffects(harness, 1);
      await run.stop();
      expect(log).toEqual(["acked"]);
      // What it promises to have committed: the effect, or that the message is stored. In the second case it may
      // already be handled while the fact checks.
      const committed = mode === "inbox" ? ["1"] : ["1", "m"];
      expect(committed.filter((each) => acked[0]?.includes(each))).not.toEqual([]);
    });

    fact("a duplicate is acknowledged, reported, and not handled", async (harness) => {
      const { broker, publisher } = orders();
      const { log, begun, start, stop } = consuming(harness, { mode });
      for (const _ of [1, 2, 3]) await publisher.publish(Placed, { order: "1" }, { id: "same" });
      start(broker.receiver());
      await log.until("delivery.skipped", 2);
      await untilEffects(harness, 1);
      await stop();
      expect([begun, await harness.effects()]).toEqual([["1"], ["1"]]);
      expect(broker.depth(consumer)).toBe(0);
    });

    fact("one id has one effect, whatever the time of its copies", async (harness) => {
      const { broker, publisher } = orders();
      const { log, begun, start, stop } = consuming(harness, { mode });
      const day = 24 * 3_600_000;
      // The last Thursday, 00:00 UTC.
      const turn = Math.floor(Date.now() / (7 * day)) * 7 * day;
      const times = [turn - 1_000, turn + 1_000, Date.now(), turn - 20 * day, Date.now() + 8 * day];
      const publish = (time: number) => publisher.publish(Placed, { order: "1" }, { id: "same", time: new Date(time) });
      start(broker.receiver());
      await publish(times[0] as number);
      await untilEffects(harness, 1);
      for (const time of times.slice(1)) await publish(time);
      await log.until("delivery.skipped", times.length - 1);
      await stop();
      expect([begun, await harness.effects()]).toEqual([["1"], ["1"]]);
    });

    fact("ten copies at once have one effect, even if the first fails", async (harness) => {
      const { broker, publisher } = orders();
      let failures = 1;
      const { begun, log, start, stop } = consuming(harness, {
        mode,
        handle: () => {
          if (failures-- > 0) throw new Error("the first one fails");
        },
      });
      for (let n = 0; n < 10; n++) await publisher.publish(Placed, { order: "1" }, { id: "same" });
      start(broker.receiver());
      await log.until("delivery.skipped", 9);
      await untilEffects(harness, 1);
      await untilEmpty(harness);
      await stop();
      expect([begun, await harness.effects()]).toEqual([["1", "1"], ["1"]]);
      expect(broker.depth(consumer)).toBe(0);
    });

    fact("two consumers on one database handle a message each", async (harness) => {
      const { broker, publisher, bind } = orders();
      bind("shipping");
      const runs = [consuming(harness, { mode }), consuming(harness, { mode, name: "shipping" })];
      await publisher.publish(Placed, { order: "1" });
      for (const { start } of runs) start(broker.receiver());
      await untilEffects(harness, 2);
      for (const { stop } of runs) await stop();
      expect(await harness.effects()).toEqual(["1", "1"]);
    });

    fact("a failed message is retried from the box, and acknowledged to the broker", async (harness) => {
      const { broker, publisher } = orders();
      const attempts: number[] = [];
      const { log, start, stop } = consuming(harness, {
        mode,
        handle: ({ attempt }) => {
          attempts.push(attempt);
          if (attempt < 3) throw new Error("not yet: password=secret");
        },
      });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      await log.until("delivery.handled");
      await untilEmpty(harness);
      await stop();
      expect(attempts).toEqual([1, 2, 3]);
      expect(await harness.effects()).toEqual(["1"]);
      expect(log.of("delivery.retried")).toHaveLength(2);
      expect([broker.depth(consumer), await harness.contents(box)]).toMatchObject([0, { wait: [], holds: [] }]);
    });

    fact("a message whose handler throws no proper error is stored with a reason, and retried", async (harness) => {
      const { broker, publisher } = orders();
      const thrown = Object.entries(strangeErrors());
      const { log, start, stop } = consuming(harness, {
        mode,
        handle({ order, attempt }) {
          const strange = thrown.find(([what]) => what === order);
          if (attempt === 1 && strange !== undefined) throw strange[1];
        },
      });
      for (const [what] of thrown) await publisher.publish(Placed, { order: what });
      start(broker.receiver());
      await log.until("delivery.handled", thrown.length);
      await untilEmpty(harness);
      await stop();
      expect([...(await harness.effects())].sort()).toEqual(thrown.map(([what]) => what).sort());
      expect(broker.depth(consumer)).toBe(0);
    });

    fact("failed, listed, retried, processed", async (harness) => {
      const { broker, publisher } = orders();
      let mended = false;
      const { log, start, stop } = consuming(harness, {
        mode,
        maxAttempts: 2,
        handle: () => {
          if (!mended) throw new Error("no stock");
        },
      });
      const { id } = await publisher.publish(Placed, { order: "1" }, { headers: { h: "x" } });
      start(broker.receiver());
      await log.until("delivery.parked");
      const { admin } = harness.store;
      const [parked] = (await admin.list({ box, status: "parked" })).messages;
      expect(parked).toMatchObject({ id, attempts: 2, lastError: expect.stringContaining("no stock") });
      const [details] = await admin.get(id, { box });
      expect([details?.message.headers, Buffer.from(details?.message.data ?? []).toString()]).toEqual([
        { h: "x" },
        '{"order":"1"}',
      ]);
      // A duplicate of a parked message is acknowledged, and not handled.
      await publisher.publish(Placed, { order: "1" }, { id });
      await log.until("delivery.skipped");
      mended = true;
      await admin.retry({ box, ids: [id] }, ann);
      await untilEffects(harness, 1);
      await untilEmpty(harness);
      await stop();
      expect(await harness.contents(box)).toEqual({ ...emptyBox, done: [id] });
      expect(await admin.audit({ box })).toMatchObject([{ action: "retry", by: "ann", ids: [id] }]);
    });

    fact("a permanent failure is parked at once, an unknown type after its delay", async (harness) => {
      const { broker, publisher } = orders();
      const { log, begun, start, stop } = consuming(harness, {
        mode,
        unknownWaitMs: 50,
        handle: () => {
          throw new PermanentError("no such product");
        },
      });
      await publisher.publish(Placed, { order: "1" }, { id: "never" });
      await publisher.publish(Unknown, { order: "2" }, { id: "unknown" });
      start(broker.receiver());
      await log.until("delivery.parked", 2);
      await stop();
      const { parked } = await harness.contents(box);
      expect(parked.map(({ id }) => id).sort()).toEqual(["never", "unknown"]);
      expect(begun).toEqual(["1"]);
      expect(broker.parked(consumer)).toEqual([]);
      expect(log.of("delivery.retried")).toContainEqual(expect.objectContaining({ id: "unknown", attempt: 1 }));
    });

    fact("an instance without a handler for a type leaves its messages to one that has it", async (harness) => {
      const { broker, publisher } = orders();
      const count = 30;
      const [older, newer] = [
        consuming(harness, { mode, maxAttempts: 1 }),
        consuming(harness, { mode, maxAttempts: 1, handlesUnknown: true }),
      ];
      for (let n = 0; n < count; n++) {
        await publisher.publish(Unknown, { order: `new ${n}` });
        await publisher.publish(Placed, { order: `old ${n}` });
      }
      older.start(broker.receiver());
      // Far more retries than it has attempts.
      await older.log.until("delivery.retried", 5 * count);
      newer.start(broker.receiver());
      await newer.log.until("delivery.handled");
      await older.stop();
      await untilEffects(harness, 2 * count);
      await untilEmpty(harness);
      await newer.stop();
      const numbers = Array.from({ length: count }, (_, n) => n);
      expect([...(await harness.effects())].sort()).toEqual(numbers.flatMap((n) => [`new ${n}`, `old ${n}`]).sort());
      expect(older.begun.filter((order) => order.startsWith("new"))).toEqual([]);
      expect([...older.log.of("delivery.parked"), ...newer.log.of("delivery.parked")]).toEqual([]);
      expect(older.log.of("consumer.types-differ")).toEqual([
        { name: "consumer.types-differ", consumer, type: Unknown.type, handled: [Placed.type, Keyed.type] },
      ]);
      expect(newer.log.of("consumer.types-differ")).toEqual([]);
    });

    fact("a message without an id for the inbox is parked with its reason", async (harness) => {
      const { broker, publisher } = orders();
      const { log, begun, start, stop } = consuming(harness, { mode, options: { id: () => undefined } });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      await log.until("delivery.parked");
      await stop();
      expect(begun).toEqual([]);
      expect(broker.parked(consumer)).toMatchObject([{ reason: { code: "message-id-missing" } }]);
    });

    fact("a known id with another body is parked and reported", async (harness) => {
      const { broker, publisher } = orders();
      const { log, begun, start, stop } = consuming(harness, { mode, options: { detectMismatch: true } });
      start(broker.receiver());
      await publisher.publish(Placed, { order: "1" }, { id: "same" });
      await untilEffects(harness, 1);
      await publisher.publish(Placed, { order: "1" }, { id: "same" });
      await publisher.publish(Placed, { order: "2" }, { id: "same" });
      const { error } = await log.until("delivery.parked");
      expect(error).toMatchObject({ code: "message-differs" });
      await stop();
      expect([begun, await harness.effects()]).toEqual([["1"], ["1"]]);
      expect((await harness.contents(box)).parked).toMatchObject([{ id: "same" }]);
    });

    fact("a message older than the retention is parked, and handled when an operator retries it", async (harness) => {
      const { broker, publisher } = orders();
      const { log, begun, start, stop } = consuming(harness, { mode, options: { retentionMs: 60_000 } });
      const at = (ago: number) => new Date(Date.now() - ago);
      await publisher.publish(Placed, { order: "old" }, { id: "old", time: at(61_000) });
      await publisher.publish(Placed, { order: "young" }, { id: "young", time: at(30_000) });
      start(broker.receiver());
      const { error } = await log.until("delivery.parked");
      expect(error).toMatchObject({ code: "message-too-old" });
      await untilEffects(harness, 1);
      expect(begun).toEqual(["young"]);
      await harness.store.admin.retry({ box, ids: ["old"] }, ann);
      await untilEffects(harness, 2);
      await stop();
      expect(await harness.effects()).toEqual(["young", "old"]);
    });

    fact("an outdated or differing message is parked even if it fails for another reason", async (harness) => {
      const { broker, publisher } = orders();
      const { log, start, stop } = consuming(harness, {
        mode,
        unknownWaitMs: 0,
        options: { retentionMs: 60_000, detectMismatch: true },
      });
      start(broker.receiver());
      await publisher.publish(Placed, { order: "1" }, { id: "same" });
      await untilEffects(harness, 1);
      await publisher.publish(Unknown, { order: "2" }, { id: "same" });
      await publisher.publish(Unknown, { order: "3" }, { id: "old", time: new Date(Date.now() - 61_000) });
      await log.until("delivery.parked", 2);
      await stop();
      const { parked } = await harness.contents(box);
      expect(parked.map(({ id }) => id).sort()).toEqual(["old", "same"]);
      expect(log.of("delivery.skipped")).toEqual([]);
    });

    fact("an id that cannot be made or stored holds up no other message", async (harness) => {
      const { broker, publisher } = orders();
      const { log, start, stop } = consuming(harness, {
        mode,
        concurrency: 1,
        options: {
          id: ({ id }) => {
            if (id === "bad") throw new TypeError("no such field");
            return `orders\0${id}`;
          },
        },
      });
      for (const id of ["bad", "good", "good"]) await publisher.publish(Placed, { order: id }, { id });
      start(broker.receiver());
      await log.until("delivery.parked");
      await log.until("delivery.skipped");
      await untilEffects(harness, 1);
      await stop();
      expect(await harness.effects()).toEqual(["good"]);
      expect(broker.parked(consumer)).toMatchObject([{ reason: { code: "message-id-missing" } }]);
    });

    fact("a middleware may pass on another message", async (harness) => {
      const { broker, publisher } = orders();
      let failures = 1;
      const copying = defineMiddleware({
        name: "copying",
        run: ({ message }: BaseContext, next: Next<{ message: Message }>) => next({ message: { ...message } }),
        adds: ["message"],
      });
      const { log, start, stop } = consuming(harness, {
        mode,
        outside: copying,
        handle: () => {
          if (failures-- > 0) throw new Error("once");
        },
      });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      await log.until("delivery.handled");
      await untilEmpty(harness);
      await stop();
      expect(await harness.effects()).toEqual(["1"]);
    });

    fact("a message whose COMMIT fails is retried", async (harness) => {
      const { broker, publisher } = orders();
      const { store } = harness;
      let commits = 0;
      const failing: Store<Tx> = {
        ...store,
        transaction: async (work, options) => {
          const first = ++commits === 1;
          return store.transaction(async (tx) => {
            const result = await work(tx);
            if (first) throw new Error("deferred constraint");
            return result;
          }, options);
        },
      };
      const { log, start, stop } = consuming(harness, { mode, store: failing });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      await untilEffects(harness, 1);
      await untilEmpty(harness);
      await stop();
      expect([await harness.effects(), log.of("delivery.retried").length]).toEqual([["1"], 1]);
    });

    fact("a redelivered message is stored before it is handled", "concurrentTransactions", async (harness) => {
      const { broker, publisher } = orders();
      const [first, second] = [broker.receiver(), broker.receiver()];
      const received = gate();
      await publisher.publish(Placed, { order: "1" }, { id: "killer" });
      const dying = new AbortController();
      const receiving = first.receive(
        { consumer, events: [Placed], deliver: async () => received.open() },
        dying.signal,
      );
      await received.opened;
      first.crash();
      dying.abort();
      await receiving.catch(() => {});
      const seen: (readonly string[])[] = [];
      const { start, stop } = consuming(harness, {
        mode,
        handle: async () => void seen.push((await harness.contents(box)).pending),
      });
      start(second);
      await untilEffects(harness, 1);
      await stop();
      expect(seen).toEqual([["killer"]]);
    });

    fact("an outage of the store spends no attempt and loses nothing", async (harness) => {
      const { broker, publisher } = orders();
      const { store } = harness;
      let [begins, asides, keeps] = [3, 3, 3];
      const away = () => Object.assign(new Error("connection refused"), { code: "ECONNREFUSED" });
      const flaky: Store<Tx> = {
        ...store,
        transaction: (work, options) => (begins-- > 0 ? Promise.reject(away()) : store.transaction(work, options)),
        inbox: {
          ...store.inbox,
          setAside: (...args) => (asides-- > 0 ? Promise.reject(away()) : store.inbox.setAside(...args)),
          keep: (...args) => (keeps-- > 0 ? Promise.reject(away()) : store.inbox.keep(...args)),
        },
      };
      const attempts: number[] = [];
      const { log, start, stop } = consuming(harness, {
        mode,
        store: flaky,
        maxAttempts: 2,
        handle: ({ attempt }) => {
          attempts.push(attempt);
          if (attempt === 1) throw new Error("once");
        },
      });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      await untilEffects(harness, 1);
      await untilEmpty(harness);
      await stop();
      expect(attempts).toEqual([1, 2]);
      expect([begins, mode === "inbox" ? asides : keeps].every((left) => left < 0)).toBe(true);
      expect(log.of("router.failed").length).toBeGreaterThanOrEqual(3);
      expect(log.of("delivery.parked")).toEqual([]);
    });

    fact("a consumer stops during an outage of the store, and gives back its messages", async (harness) => {
      const { broker, publisher } = orders();
      const { store } = harness;
      const away = () => Promise.reject(new Error("connection refused"));
      const gone: Store<Tx> = { ...store, transaction: away, inbox: { ...store.inbox, setAside: away, keep: away } };
      const { log, start, stop } = consuming(harness, { mode, store: gone });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      await log.until("router.failed", 2);
      await stop();
      expect([await harness.effects(), broker.depth(consumer)]).toEqual([[], 1]);
      const heir = consuming(harness, { mode });
      heir.start(broker.receiver());
      await untilEffects(harness, 1);
      await heir.stop();
    });

    fact("a handler that does not await its publish fails, and is retried", async (harness) => {
      const { broker, publisher } = orders();
      const slow: Store<Tx> = {
        ...harness.store,
        async append(...given) {
          await new Promise((resolve) => setImmediate(resolve));
          await harness.store.append(...given);
        },
      };
      const outbox = createOutbox(slow, { source: "/orders" });
      const { log, start, stop } = consuming(harness, {
        mode,
        handle: async ({ tx, attempt }) => {
          const published = outbox.in(tx).publish(Placed, { order: "2" });
          published.catch(() => {});
          if (attempt > 1) await published;
        },
      });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      expect(await log.until("delivery.retried")).toMatchObject({ error: { code: "not-awaited" } });
      await untilEffects(harness, 1);
      await untilEmpty(harness);
      await stop();
      expect(await harness.effects()).toEqual(["1"]);
    });

    fact("an error of a handler spends an attempt, even if it looks like one of the store", async (harness) => {
      const { broker, publisher } = orders();
      const thrown: Readonly<Record<string, Error>> = {
        failed: new PostboxError("store-failed", "another store failed"),
        unavailable: new PostboxError("store-unavailable", "another store is unreachable"),
        missing: new PostboxError("schema-missing", "another store has no tables"),
        conflict: Object.assign(new Error("another database had a conflict"), { code: "40001" }),
      };
      const { log, start, stop } = consuming(harness, {
        mode,
        maxAttempts: 2,
        handle: ({ order }) => {
          throw thrown[order];
        },
      });
      for (const order of Object.keys(thrown)) await publisher.publish(Placed, { order });
      start(broker.receiver());
      await log.until("delivery.parked", Object.keys(thrown).length);
      await stop();
      const codes = log.of("delivery.parked").map(({ error }) => PostboxError.from(error).code);
      expect(codes).toEqual(Object.keys(thrown).map(() => "attempts-spent"));
      expect(await harness.effects()).toEqual([]);
    });

    fact("a store that fails at the inbox's own statements spends no attempt", async (harness) => {
      const { broker, publisher } = orders();
      let failures = 3;
      const failing = <A extends unknown[], R>(call: (...given: A) => Promise<R>) => {
        return async (...given: A): Promise<R> => {
          if (failures-- > 0) throw new PostboxError("store-failed", "no space left");
          return call(...given);
        };
      };
      const { inbox } = harness.store;
      const store: Store<Tx> = {
        ...harness.store,
        inbox: { ...inbox, remember: failing(inbox.remember), handled: failing(inbox.handled) },
      };
      const { log, start, stop } = consuming(harness, { mode, store, maxAttempts: 1 });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      await untilEffects(harness, 1);
      await untilEmpty(harness);
      await stop();
      expect(log.of("delivery.parked")).toEqual([]);
      expect(log.of("router.failed").map(({ error }) => error.code)).toEqual(Array(3).fill("store-failed"));
    });

    fact("a transaction that conflicts with another one runs again, without a failure", async (harness) => {
      const { broker, publisher } = orders();
      const conflict = new Error("deadlock detected");
      let conflicts = 2;
      const store: Store<Tx> = {
        ...harness.store,
        isConflict: (error) => error === conflict,
      };
      const { log, begun, start, stop } = consuming(harness, {
        mode,
        store,
        maxAttempts: 1,
        handle: () => {
          if (conflicts-- > 0) throw conflict;
        },
      });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      await log.until("delivery.handled");
      await stop();
      expect([begun, await harness.effects()]).toEqual([["1", "1", "1"], ["1"]]);
      expect(log.of("delivery.retried")).toEqual([]);
    });

    if (mode === "inbox") {
      fact("a connection that is lost before the handler runs spends no attempt, however often", async (harness) => {
        const { broker, publisher } = orders();
        const lost = new Error("connection lost");
        // More often than a message may lose its connection while it is handled.
        let losses = 6;
        const { inbox, isUnavailable } = harness.store;
        const losing = async () => {
          losses--;
          throw lost;
        };
        const store: Store<Tx> = {
          ...harness.store,
          isUnavailable: (error) => error === lost || isUnavailable(error),
          inbox: { ...inbox, remember: (...given) => (losses > 0 ? losing() : inbox.remember(...given)) },
        };
        const { log, begun, start, stop } = consuming(harness, { mode, store, maxAttempts: 1 });
        await publisher.publish(Placed, { order: "1" });
        start(broker.receiver());
        await untilEffects(harness, 1);
        await stop();
        expect([losses, begun, log.of("delivery.parked")]).toEqual([0, ["1"], []]);
      });
    }

    fact("a transaction that keeps conflicting, or loses its connection, spends no attempt", async (harness) => {
      const { broker, publisher } = orders();
      const [conflict, lost] = [new Error("deadlock detected"), new Error("connection lost")];
      const causes = [...Array.from({ length: 10 }, () => conflict), lost, lost];
      const store: Store<Tx> = {
        ...harness.store,
        isConflict: (error) => error === conflict,
        isUnavailable: (error) => error === lost,
      };
      const { log, start, stop } = consuming(harness, {
        mode,
        store,
        maxAttempts: 1,
        handle: () => {
          const cause = causes.shift();
          if (cause !== undefined) throw cause;
        },
      });
      await publisher.publish(Placed, { order: "1" });
      start(broker.receiver());
      await untilEffects(harness, 1);
      await untilEmpty(harness);
      await stop();
      expect([causes, log.of("delivery.parked")]).toEqual([[], []]);
      expect(await harness.effects()).toEqual(["1"]);
    });

    fact(
      "a handler that hangs is rolled back, retried and parked, and commits nothing later",
      "concurrentTransactions",
      async (harness) => {
        const { broker, publisher } = orders();
        const wakes = gate();
        const woken: Promise<string>[] = [];
        const { log, start, stop } = consuming(harness, {
          mode,
          outside: timeout(50) as unknown as Middleware<string>,
          maxAttempts: 2,
          concurrency: 1,
          handle: async ({ order, tx }) => {
            if (order !== "hangs") return;
            await wakes.opened;
            const late = harness.effect(tx, "late").then(
              () => "written",
              () => "refused",
            );
            woken.push(late);
            await late;
          },
        });
        await publisher.publish(Keyed, { order: "hangs", key: "k" }, { id: "hangs" });
        start(broker.receiver());
        const { error } = await log.until("delivery.retried");
        expect(error).toMatchObject({ code: "handler-timeout" });
        await log.until("delivery.parked");
        await publisher.publish(Keyed, { order: "next", key: "k" });
        await untilEffects(harness, 1);
        expect((await harness.contents(box)).parked).toMatchObject([{ id: "hangs" }]);
        expect(log.of("delivery.abandoned")).toMatchObject([{ id: "hangs" }, { id: "hangs" }]);
        wakes.open();
        await stop();
        await expect.poll(() => woken.length).toBe(2);
        expect(await Promise.all(woken)).toEqual(["refused", "refused"]);
        expect(await harness.effects()).toEqual(["next"]);
        expect(broker.depth(consumer)).toBe(0);
      },
    );

    fact("a stop ends the transaction of a handler that hangs", "concurrentTransactions", async (harness) => {
      const { broker, publisher } = orders();
      const [begun, wakes] = [gate(), gate()];
      const { log, start, stop } = consuming(harness, {
        mode,
        shutdownTimeoutMs: 1,
        handle: () => {
          begun.open();
          return wakes.opened;
        },
      });
      await publisher.publish(Placed, { order: "1" }, { id: "1" });
      start(broker.receiver());
      await begun.opened;
      await stop();
      await log.until("delivery.abandoned");
      const heir = consuming(harness, { mode });
      heir.start(broker.receiver());
      await untilEffects(harness, 1);
      await heir.stop();
      wakes.open();
      expect(await harness.effects()).toEqual(["1"]);
    });

    fact("remembers at least as long as the broker may redeliver", async (harness) => {
      const { broker } = orders();
      const { router } = consuming(harness, { mode, options: { retentionMs: 1_000 } });
      const receiver: Receiver = { ...broker.receiver(), redeliveryWindowMs: 2_000 };
      const refused = { code: "option-invalid", path: "retentionMs" };
      await expect(router.run(receiver, AbortSignal.abort())).rejects.toMatchObject(refused);
    });
  });
}
