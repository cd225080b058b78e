import { checkHistory, type Violation } from "@postbox/testkit/history";
import { createOutbox, inboxOf } from "postbox";
import type { Failpoint } from "postbox/store";
import { type Actor, startActor } from "./actors.js";
import { operate } from "./operator.js";
import { consumers, Placed } from "./orders.js";
import type { Fault, Plan, PlannedTransaction, Role } from "./plan.js";
import { promisesOf } from "./promises.js";
import type { Situation } from "./situations.js";
import { box, Stage } from "./stage.js";

export interface Simulated {
  readonly violations: readonly (Violation | Leak)[];
  readonly events: number;
  readonly situations: ReadonlyMap<Situation, number>;
  readonly failpoints: ReadonlySet<Failpoint>;
}

/**
 * A rule that is broken at the end of a run: something does not end after the last fault, or continues after everything
 * was stopped.
 */
interface Leak {
  readonly rule: "leak" | "stuck";
  readonly text: string;
}

const inboxes = consumers.map(inboxOf);

/** Enough for leases, retries, restarts and a full search for skipped rows. */
const patienceMs = 4 * 60_000;

/** Plays one plan to its end and checks its history. `trace` receives each event as text. */
export async function simulate(plan: Plan, trace?: (line: string) => void): Promise<Simulated> {
  const stage = new Stage(plan, trace);
  const { world, recorder, chance, broker, database } = stage;
  const acting = new Map<string, Actor>();
  /** Actors that are stopped or are stopping; others have taken their places. */
  const leaving: Actor[] = [];
  let unfinished = plan.transactions.length;
  let isOver = false;

  function start(role: Role, index: number, life: number): void {
    const name = `${role}-${index}`;
    const actor = startActor(stage, role, index, life);
    acting.set(name, actor);
    actor.process.onDeath(() => {
      recorder.record({ what: "fault", kind: `${actor.process.name} died` });
      world.at(chance.between(10, 800), () => {
        if (!isOver && acting.get(name) === actor) start(role, index, life + 1);
      });
    });
  }

  /** Restarts an actor as a deployment does: the next one starts before or after the last one has ended. */
  function restart(role: Role, index: number, actor: Actor): void {
    const next = () => {
      if (!isOver && acting.get(`${role}-${index}`) === actor) start(role, index, 100 + Math.floor(world.now));
    };
    leaving.push(actor);
    if (chance.is(0.5)) next();
    actor.stop().then(next, next);
  }

  /** Publishes through the producer that is alive at that time. */
  function place(planned: PlannedTransaction): void {
    const producer = acting.get(`producer-${planned.producer}`);
    if (producer === undefined || !producer.process.alive) {
      world.at(50, () => place(planned));
      return;
    }
    let isFinished = false;
    const finish = () => {
      if (!isFinished) unfinished--;
      isFinished = true;
    };
    producer.process.onDeath(finish);
    // The client gives up; only the database knows whether the transaction was committed.
    publish(stage, producer, planned)
      .catch(() => {})
      .finally(finish);
  }

  function wreak(fault: Fault): void {
    if ("from" in fault && !isOnlyRefusal(fault)) {
      world.at(fault.from, () => recorder.record({ what: "fault", kind: fault.kind }));
    }
    if (!("at" in fault)) return;
    world.at(fault.at, () => {
      // A router that is stopped also returns what it has not handled, and the broker delivers that again.
      recorder.record({ what: "fault", kind: fault.kind });
      if (fault.kind === "clock jumps") return database.advance(fault.ms);
      if (fault.kind === "connection lost") return acting.get(`consumer-${fault.index}`)?.loseConnection?.();
      const actor = acting.get(`${fault.role}-${fault.index}`);
      if (actor === undefined || !actor.process.alive) return;
      if (fault.kind === "crash") actor.process.die();
      else if (fault.kind === "pause") actor.process.pause(fault.ms);
      else if (fault.kind === "store cut off") actor.links.store.cut(fault.ms);
      else if (fault.kind === "broker cut off") actor.links.broker.cut(fault.ms);
      else if (fault.kind === "broker half open") actor.links.broker.swallow(fault.ms);
      else if (fault.kind === "host clock jumps") actor.process.setClock(fault.ms);
      else restart(fault.role, fault.index, actor);
    });
  }

  function isRested(): boolean {
    if (world.now < plan.healsAt || unfinished > 0 || broker.depth(consumers) > 0) return false;
    // A transaction whose client crashed or gave up may still commit.
    if (stage.facts.open.size > 0) return false;
    const { pending, wait, scheduled } = database.contents(box);
    const { held } = stage.facts.of(box);
    if (scheduled.length > 0 || ![...pending, ...wait].every(({ key }) => held.has(key))) return false;
    return inboxes.every((name) => database.contents(name).pending.length + database.contents(name).wait.length === 0);
  }

  for (let index = 0; index < plan.relays; index++) start("relay", index, 1);
  for (let index = 0; index < plan.consumers; index++) start("consumer", index, 1);
  for (let index = 0; index < 3; index++) start("producer", index, 1);
  for (const planned of plan.transactions) world.at(planned.at, () => place(planned));
  for (const fault of plan.faults) wreak(fault);
  for (const operation of plan.operations) world.at(operation.at, () => void operate(stage, operation));

  const leaks: Leak[] = [];
  if (!(await world.run(isRested, 50, patienceMs))) {
    leaks.push({ rule: "stuck", text: `not at rest after ${patienceMs / 1000} s` });
  }
  isOver = true;
  leaks.push(...(await stopAll(stage, [...acting.values(), ...leaving])));
  recordRest(stage);
  return {
    violations: [...leaks, ...checkHistory(recorder.history, promisesOf(plan))],
    events: recorder.history.length,
    situations: recorder.situations,
    failpoints: stage.failpoints,
  };
}

async function publish(
  { plan, poisons, world }: Stage,
  { process, store, notifier }: Actor,
  planned: PlannedTransaction,
): Promise<void> {
  const { strictKeyOrder } = plan;
  const outbox = createOutbox(store, { source: "/producer", runtime: process.runtime, strictKeyOrder, notifier });
  await store.transaction(async (tx) => {
    let number = 0;
    for (const [call, keys] of planned.calls.entries()) {
      const drafts = keys.map((key) => {
        const name = `${key ?? ""} ${planned.name}/${++number}`;
        if (key !== null) return Placed.keyed.message({ name });
        const { delayMs } = planned;
        return Placed.keyless.message(
          { name },
          delayMs === undefined ? {} : { deliverAt: new Date(world.runtime.now() + delayMs) },
        );
      });
      const [first] = await outbox.in(tx).publishAll(drafts);
      if (planned.poison !== undefined && call === 0 && first !== undefined) poisons.set(first.id, planned.poison);
      if (planned.thinkMs > 0) await process.sleep(planned.thinkMs);
    }
    if (planned.rollsBack) throw new Error("thought better of it");
  });
}

/** Whether a fault is only a refusal: then nothing that was sent before is sent twice. */
function isOnlyRefusal(fault: Fault): boolean {
  const refusals = ["refuses", "rejects", "drops", "waits", "unavailable"];
  return fault.kind === "broker weather" && Object.keys(fault.weather).every((what) => refusals.includes(what));
}

async function stopAll({ world }: Stage, actors: readonly Actor[]): Promise<Leak[]> {
  const leaks: Leak[] = [];
  const running = actors.filter(({ process }) => process.alive);
  let stopped = 0;
  const stop = () => stopped++;
  for (const actor of running) {
    actor.stop().then(stop, stop);
    actor.process.onDeath(stop);
  }
  if (!(await world.run(() => stopped >= running.length, 10, 60_000))) {
    leaks.push({ rule: "leak", text: `${running.length - stopped} of ${running.length} did not stop` });
  }
  for (const { process } of running) {
    if (process.alive && process.timers > 0) {
      leaks.push({ rule: "leak", text: `${process.name} was stopped, and has ${process.timers} timers left` });
    }
  }
  // Waits for what is in flight, and for timers that crashed processes had set.
  await world.run(() => world.pending === 0, 10_000, 120_000);
  if (world.pending > 0) leaks.push({ rule: "leak", text: `${world.pending} tasks are left` });
  return leaks;
}

function recordRest({ recorder, broker, database }: Stage): void {
  for (const consumer of consumers) {
    for (const id of broker.parked(consumer)) recorder.record({ what: "refused", consumer, id });
  }
  for (const consumer of consumers) {
    for (const { message } of database.contents(inboxOf(consumer)).parked) {
      recorder.record({ what: "refused", consumer, id: message.id });
    }
  }
  const { pending, wait, parked, done } = database.contents(box);
  const ids = (messages: readonly { readonly id: string }[]) => messages.map(({ id }) => id);
  const parts = { pending: ids(pending), wait: ids(wait), parked: ids(parked.map(({ message }) => message)) };
  recorder.record({ what: "rested", box, contents: { ...parts, done: ids(done) } });
}
