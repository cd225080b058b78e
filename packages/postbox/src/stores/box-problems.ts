import type { AnyProblem, Health, HealthProblem } from "../health.js";
import { laneCount, renewalsPerLease } from "../internal/lane.js";
import type { Order } from "../store.js";
import { consumerOf } from "./box-names.js";
import { counted, duration } from "./figures.js";
import type { CheckedHealth } from "./health-options.js";

/** The state of a box at one moment, in any store. */
export interface BoxSight {
  /** The message that could have been sent for the longest time, and for how long. Absent if there is none. */
  readonly unsent?: Unsent & { readonly ageMs: number; readonly status: "pending" | "waiting" };
  /** The oldest message that is being retried, except those held until an operator releases them. */
  readonly retried?: Retried;
  /** The oldest of these whose last error `isUnroutable`. */
  readonly unroutable?: Retried;
  /** The first scheduled message that is due. */
  readonly late?: Unsent & { readonly lateMs: number };
  /** How many lanes have no active owner. */
  readonly unowned: number;
  /** Whether such a lane has messages to send. */
  readonly unsentUnowned: boolean;
  /** Relays whose lease has not expired; `beat` as in `Member`. */
  readonly relays: readonly {
    readonly owner: string;
    readonly order: Order;
    readonly lanes: number;
    readonly beat: number;
  }[];
  readonly pausedAt?: Date;
  readonly pausedForMs?: number;
  /**
   * The parked messages. A store may stop counting at `countedBeyond` + 1 more than the limit, and for held keys at
   * `countedBeyond` + 1.
   */
  readonly parked: number;
  readonly heldForGood: number;
  /** At least some of these. */
  readonly heldKeys: readonly string[];
}

interface Unsent {
  readonly id: string;
  readonly topic: string;
}

interface Retried extends Unsent {
  readonly ageMs: number;
  readonly attempts: number;
  readonly lastError: string;
}

/** How the stored error of a message begins that no queue takes. */
export const unroutablePrefix = "[unroutable]";

/** Whether a message with this last error waits for a queue. */
export function isUnroutable(lastError: string): boolean {
  return lastError.startsWith(unroutablePrefix);
}

/** Stores stop counting this far above a limit, so that a check stays fast. */
export const countedBeyond = 1000;
const named = 10;

/** The wording for a box: relays send an outbox, instances of a consumer handle its inbox. */
interface Words {
  /** The messages of the box, as in "the oldest … of outbox". */
  readonly box: string;
  readonly unsent: string;
  readonly send: string;
  readonly sent: string;
  readonly relay: string;
  readonly relays: string;
  readonly noneLives: string;
  /** What happens once the attempts are spent. */
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
    lookAt:
      "check their telemetry for delivery.retried and router.failed, how long a handler takes, and 'concurrency'; " +
      "a handler may also wait for a connection of its pool",
  };
}

/** The problems of a box that every store can report, without those of the connection to it. */
export type BoxProblem = Exclude<
  HealthProblem,
  { readonly code: "unreachable" | "store-refused" | "unreadable" | `schema-${string}` | `transport-${string}` }
>;

/**
 * The problems of a box in this state.
 *
 * @example
 * ```ts
 * const health = healthOf(boxProblems("outbox", sight, checkHealth()));
 * ```
 */
export function boxProblems(box: string, sight: BoxSight, limits: CheckedHealth): BoxProblem[] {
  const words = wordsOf(box);
  const problems: BoxProblem[] = [
    ...unsentTooOld(sight, words, limits),
    ...retriedTooLong(sight.retried, words, limits),
    // An older message that fails for another reason must not hide it.
    ...(sight.unroutable?.id === sight.retried?.id ? [] : retriedTooLong(sight.unroutable, words, limits)),
    ...scheduleLate(sight, words, limits),
    ...lanesUnowned(sight, words),
    ...relaysIdle(sight, words),
    ...paused(sight, words),
    ...parked(sight, words, limits),
    ...heldForGood(sight, words),
  ];
  return problems.map((problem) => ({ ...problem, box }));
}

/**
 * Errors first, otherwise in the order in which they were found.
 *
 * @example
 * ```ts
 * const { healthy, problems } = healthOf(boxProblems("outbox", sight, checkHealth()));
 * ```
 */
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

function retriedTooLong(
  retried: Retried | undefined,
  words: Words,
  { retriedForMs, unsentAgeMs }: CheckedHealth,
): BoxProblem[] {
  if (retried === undefined) return [];
  const { id, topic, ageMs, attempts, lastError } = retried;
  const isOld = ageMs > retriedForMs;
  // An unroutable message spends no attempts and is never parked. Only this problem shows that its key is blocked.
  const waitsForQueue = isUnroutable(lastError);
  if (!isOld && !(waitsForQueue && ageMs > unsentAgeMs)) return [];
  const advice = waitsForQueue
    ? "messaging.prepare() of its consumer makes the queue"
    : "correct that, or remove it with admin.discard";
  const text =
    `the message ${id} of ${words.box} to ${topic} was appended ${duration(ageMs)} ago and cannot be ` +
    `${words.sent}, the last time over: ` +
    `${lastError}; ${advice}. Later messages of its key wait behind it`;
  const severity = waitsForQueue && isOld ? "error" : "warning";
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
  const living = relays.length === 1 ? `1 ${words.relay} is running` : `${relays.length} ${words.relays} are running`;
  return `${living}, but cannot ${words.send}, or not fast enough; ${words.lookAt}`;
}

function lanesUnowned({ unowned, unsentUnowned, relays, pausedAt }: BoxSight, words: Words): BoxProblem[] {
  if (unowned === 0 || pausedAt !== undefined) return [];
  // A service that only consumes has an outbox as well, and a retired consumer still has a box.
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
  // Running relays take such lanes within a lease, as in every deployment. Messages that get too old are reported
  // separately.
  const severity = unsentUnowned && relays.length === 0 ? "error" : "warning";
  return [{ code: "lanes-unowned", severity, text, lanes: unowned, relays: relays.length }];
}

/** During a deployment, old and new relays run side by side, so a new one may wait for its lanes. */
const mayBeIdleForLeases = 2;

/** With a total order, one relay has all lanes and the others stand by. While the box is paused, no relay has any. */
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
  const have = idle.length === 1 ? "has" : "have";
  const running = counted(relays.length, words.relay);
  const text = `${idle.length} of ${running} of ${words.box} ${have} no lane to work on: ${why}`;
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
