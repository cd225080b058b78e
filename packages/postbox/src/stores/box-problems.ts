import type { AnyProblem, Health, HealthProblem } from "../health.js";
import { laneCount, renewalsPerLease } from "../internal/lane.js";
import type { Order } from "../store.js";
import { consumerOf } from "./box-names.js";
import { counted, duration } from "./figures.js";
import type { CheckedHealth } from "./health-options.js";

/** What can be seen of a box at one moment, in any store. */
export interface BoxSight {
  /** What could have been sent for longest, and for how long. Absent where there is nothing. */
  readonly unsent?: Unsent & { readonly ageMs: number; readonly status: "pending" | "waiting" };
  /** What is tried again and again, the oldest. Not what is held for good. */
  readonly retried?: Unsent & { readonly ageMs: number; readonly attempts: number; readonly lastError: string };
  /** The first of what is scheduled and due. */
  readonly late?: Unsent & { readonly lateMs: number };
  /** How many lanes have no owner who lives. */
  readonly unowned: number;
  /** Whether there is something to send in one of those. */
  readonly unsentUnowned: boolean;
  /** Those whose lease has not expired; `beat` as in `Member`. */
  readonly relays: readonly {
    readonly owner: string;
    readonly order: Order;
    readonly lanes: number;
    readonly beat: number;
  }[];
  readonly pausedAt?: Date;
  readonly pausedForMs?: number;
  /** Counted up to `countedBeyond` and one beyond the limit, or all; so are the held keys, beyond none. */
  readonly parked: number;
  readonly heldForGood: number;
  /** At least some of these. */
  readonly heldKeys: readonly string[];
}

interface Unsent {
  readonly id: string;
  readonly topic: string;
}

/** No store counts further than this much beyond a limit: a figure is to be had at once. */
export const countedBeyond = 1000;
const named = 10;

/** What is said of a box: an outbox sends by relays, a consumer's inbox handles by its instances. */
interface Words {
  /** What is in it, as in "the oldest … of outbox". */
  readonly box: string;
  readonly unsent: string;
  readonly send: string;
  readonly sent: string;
  readonly relay: string;
  readonly relays: string;
  readonly noneLives: string;
  /** What it means that its tries are spent. */
  readonly never: string;
  readonly listParked: string;
  readonly lookAt: string;
}

function wordsOf(box: string): Words {
  const consumer = consumerOf(box);
  if (consumer === undefined) {
    return {
      box,
      unsent: "unsent message",
      send: "send",
      sent: "sent",
      relay: "relay",
      relays: "relays",
      noneLives:
        "no relay is running; start one (createMessaging starts its relay as soon as all of its consumers receive)",
      never: "they can never be sent",
      listParked: 'admin.list({ status: "parked" })',
      lookAt:
        "check their telemetry for breaker.opened, relay.blocked and relay.failed, the broker, and their rate of " +
        "sending",
    };
  }
  return {
    box,
    unsent: "message that was kept and not handled",
    send: "handle",
    sent: "handled",
    relay: "instance",
    relays: `instances of the consumer ${consumer}`,
    noneLives:
      `no instance of the consumer ${consumer} is running; ` +
      "start one, or if it was retired, end what is left with admin.discard",
    never: "they can never be handled",
    listParked: `admin.list({ status: "parked", box: "${box}" })`,
    lookAt: "check their telemetry for delivery.retried and router.failed, how long a handler takes, and 'concurrency'",
  };
}

/** What can be wrong with a box, as any store can tell; not with the way to it. */
export type BoxProblem = Exclude<
  HealthProblem,
  { readonly code: "unreachable" | "store-refused" | "unreadable" | `schema-${string}` | `transport-${string}` }
>;

/** What is wrong with a box that looks like this. */
export function boxProblems(box: string, sight: BoxSight, limits: CheckedHealth): BoxProblem[] {
  const words = wordsOf(box);
  const problems: BoxProblem[] = [
    ...unsentTooOld(sight, words, limits),
    ...retriedTooLong(sight, words, limits),
    ...scheduleLate(sight, words, limits),
    ...lanesUnowned(sight, words),
    ...relaysIdle(sight, words),
    ...paused(sight, words),
    ...parked(sight, words, limits),
    ...heldForGood(sight, words),
  ];
  return problems.map((problem) => ({ ...problem, box }));
}

/** Errors first, each as it was found. */
export function healthOf<P extends AnyProblem>(problems: readonly P[]): Health<P> {
  const of = (severity: AnyProblem["severity"]) => problems.filter((problem) => problem.severity === severity);
  return { healthy: of("error").length === 0, problems: [...of("error"), ...of("warning")] };
}

function unsentTooOld(sight: BoxSight, words: Words, { unsentAgeMs }: CheckedHealth): BoxProblem[] {
  const { unsent } = sight;
  if (unsent === undefined || unsent.ageMs <= unsentAgeMs) return [];
  const { id, topic, status, ageMs } = unsent;
  const since = status === "pending" ? "was appended" : "was due to be tried again";
  const text =
    `the oldest ${words.unsent} of ${words.box}, ${id} to ${topic}, ${since} ${duration(ageMs)} ago, ` +
    `and ${duration(unsentAgeMs)} is the limit: ${whyUnsent(sight, words)}`;
  return [{ code: "unsent-too-old", severity: "error", text, ageMs, status, id, topic }];
}

function retriedTooLong(sight: BoxSight, words: Words, { retriedForMs, unsentAgeMs }: CheckedHealth): BoxProblem[] {
  const { retried } = sight;
  if (retried === undefined) return [];
  const { id, topic, ageMs, attempts, lastError } = retried;
  const isOld = ageMs > retriedForMs;
  // It does not spend attempts, and so is never parked: only this tells that its key stands still.
  const isUnroutable = lastError.startsWith("[unroutable]");
  if (!isOld && !(isUnroutable && ageMs > unsentAgeMs)) return [];
  const advice = isUnroutable
    ? "messaging.prepare() of its consumer makes the queue"
    : "correct that, or remove it with admin.discard";
  const text =
    `the message ${id} of ${words.box} to ${topic} was appended ${duration(ageMs)} ago and cannot be ` +
    `${words.sent}, the last time over: ` +
    `${lastError}; ${advice}. What comes after it, of its key, waits`;
  const severity = isUnroutable && isOld ? "error" : "warning";
  return [{ code: "retried-too-long", severity, text, ageMs, attempts, lastError, id, topic }];
}

function scheduleLate(sight: BoxSight, words: Words, { unsentAgeMs }: CheckedHealth): BoxProblem[] {
  const { late } = sight;
  if (late === undefined || late.lateMs <= unsentAgeMs) return [];
  const { id, topic, lateMs } = late;
  const text =
    `the scheduled message ${id} of ${words.box} to ${topic} was due ${duration(lateMs)} ago, ` +
    `and ${duration(unsentAgeMs)} is the limit: ${whyUnsent(sight, words)}`;
  return [{ code: "schedule-late", severity: "error", text, lateMs, id, topic }];
}

function whyUnsent({ pausedAt, relays, unowned }: BoxSight, words: Words): string {
  if (pausedAt !== undefined) return "the box is paused; call admin.resume";
  if (relays.length === 0) return words.noneLives;
  if (unowned > 0) return `${counted(unowned, "lane")} of ${laneCount} have no owner; see lanes-unowned`;
  const living = relays.length === 1 ? `1 ${words.relay} lives` : `${relays.length} ${words.relays} live`;
  return `${living}, but cannot ${words.send}, or not fast enough; ${words.lookAt}`;
}

function lanesUnowned({ unowned, unsentUnowned, relays, pausedAt }: BoxSight, words: Words): BoxProblem[] {
  if (unowned === 0 || pausedAt !== undefined) return [];
  // A service that only consumes has an outbox all the same, and a consumer that was retired has a box.
  if (!unsentUnowned && relays.length === 0) return [];
  const why =
    relays.length === 0
      ? words.noneLives
      : "they are being assigned, or the running ones fail to take them; " +
        `check the telemetry of the ${words.relays} for relay.failed ` +
        "if it stays so for longer than a lease";
  const text =
    `${unowned} of ${laneCount} lanes of ${words.box} have no owner, or their owner's lease has expired, ` +
    `and ${unsentUnowned ? `what is to be ${words.sent} there waits` : `nothing is to be ${words.sent} there yet`}: ` +
    why;
  // Relays that live take them within a lease, as in every deployment; messages that get old meanwhile are an error of their own.
  const severity = unsentUnowned && relays.length === 0 ? "error" : "warning";
  return [{ code: "lanes-unowned", severity, text, lanes: unowned, relays: relays.length }];
}

/** In a deployment old and new relays run side by side, so a new one may wait for its lanes. */
const mayBeIdleForLeases = 2;

/** With a total order one relay has all lanes and the others stand by; while the box is paused no relay has any. */
function relaysIdle({ relays, pausedAt }: BoxSight, words: Words): BoxProblem[] {
  if (pausedAt !== undefined || relays.some(({ order }) => order === "total")) return [];
  const isNew = (beat: number) => (beat - 1) / renewalsPerLease <= mayBeIdleForLeases;
  const idle = relays.filter(({ lanes, beat }) => lanes === 0 && !isNew(beat)).map(({ owner }) => owner);
  if (idle.length === 0) return [];
  const why =
    relays.length > laneCount
      ? `there are only ${laneCount} lanes; run fewer ${words.relays}`
      : `for more than ${mayBeIdleForLeases} leases: the others give no lanes back; ` +
        "check its telemetry for relay.failed";
  const text = `${idle.length} of ${counted(relays.length, words.relay)} of ${words.box} ${idle.length === 1 ? "has" : "have"} no lane to work on: ${why}`;
  const owners = idle.sort().slice(0, named);
  return [{ code: "relays-idle", severity: "warning", text, relays: relays.length, idle: idle.length, owners }];
}

function paused({ pausedAt, pausedForMs = 0 }: BoxSight, words: Words): BoxProblem[] {
  if (pausedAt === undefined) return [];
  const text =
    `the box ${words.box} has been paused for ${duration(pausedForMs)}: ` +
    `an operator has called admin.pause, and nothing is ${words.sent} meanwhile; ` +
    "admin.audit says who, admin.resume ends it";
  return [{ code: "paused", severity: "warning", text, since: pausedAt }];
}

function parked({ parked: found }: BoxSight, words: Words, { parked: limit }: CheckedHealth): BoxProblem[] {
  if (found <= limit) return [];
  const count = Math.min(found, limit + countedBeyond);
  const more = found > count;
  const text =
    `${more ? "more than " : ""}${counted(count, "message")} of ${words.box} ${count === 1 ? "is" : "are"} ` +
    `parked, and the limit is ${limit}: ` +
    `their tries are spent, or ${words.never}; ${words.listParked} ` +
    `says why, admin.retry lets them be ${words.sent} again, admin.discard removes them`;
  return [{ code: "parked", severity: "warning", text, count, more }];
}

function heldForGood({ heldForGood: found, heldKeys }: BoxSight, words: Words): BoxProblem[] {
  if (found === 0) return [];
  const count = Math.min(found, countedBeyond);
  const more = found > count;
  const text =
    `${more ? "more than " : ""}${counted(count, "key")} of ${words.box} ${count === 1 ? "is" : "are"} held ` +
    "until an operator releases " +
    `${count === 1 ? "it" : "them"}: a message was parked with onPark: "hold", and later ones of its key wait; ` +
    `let the parked one be ${words.sent} again with admin.retry, or let the key go on without it with admin.release`;
  return [
    { code: "held-for-good", severity: "warning", text, count, more, keys: [...heldKeys].sort().slice(0, named) },
  ];
}
