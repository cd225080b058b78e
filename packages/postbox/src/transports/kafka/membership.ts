import { ConfigError, type PostboxError, TransportDownError } from "../../errors.js";
import { type Runtime, sleep } from "../../internal/runtime.js";
import { assign, decodeAssignment, decodeMember, encodeAssignment, encodeMember, protocolName } from "./assignment.js";
import type { GroupIdentity, JoinAnswer, KafkaCluster, TopicPartition } from "./client.js";
import { code, codeText } from "./error-codes.js";
import type { Topics } from "./topics.js";

export interface MembershipOptions {
  readonly group: string;
  readonly topics: readonly string[];
  readonly sessionTimeoutMs: number;
  readonly heartbeatMs: number;
  readonly instanceId?: string;
  readonly place: string;
  readonly runtime: Runtime;
}

export interface MembershipListener {
  /** These are this member's now. Resolves when their streams have started. */
  assigned(added: readonly TopicPartition[]): Promise<void>;
  /** The group gives them to others. Resolves when their streams have ended and their offsets are stored. */
  revoked(gone: readonly TopicPartition[]): Promise<void>;
  /** The group has given up this member: others may have its partitions already. */
  lost(all: readonly TopicPartition[], why: string): void;
  /** The coordinator has answered. */
  alive(): void;
  /** It cannot be reached for the moment. */
  failing(error: PostboxError): void;
}

const retryMs = 100;
const coordinatorCodes = new Set<number>([code.coordinatorLoading, code.coordinatorNotAvailable, code.notCoordinator]);
/** How often to look for new partitions. */
const refreshMs = 60_000;

/** Membership in a consumer group: joins, sends heartbeats, and follows the group's rebalances until it is stopped. */
export class Membership {
  readonly #cluster: KafkaCluster;
  readonly #topics: Topics;
  readonly #options: MembershipOptions;
  readonly #listener: MembershipListener;
  #memberId = "";
  #generation = -1;
  #owned: readonly TopicPartition[] = [];
  #coordinator: number | undefined;
  #leads = false;
  #counts = "";
  /** When the coordinator last knew of this member: the start of the last request that succeeded. */
  #knownAt = 0;

  constructor(cluster: KafkaCluster, topics: Topics, options: MembershipOptions, listener: MembershipListener) {
    this.#cluster = cluster;
    this.#topics = topics;
    this.#options = options;
    this.#listener = listener;
  }

  /** For commits. Undefined while it is no member. */
  get identity(): (GroupIdentity & { readonly generation: number }) | undefined {
    return this.#generation === -1 ? undefined : { ...this.#who, generation: this.#generation };
  }

  get #who(): GroupIdentity {
    const { group, instanceId } = this.#options;
    return { group, memberId: this.#memberId, ...(instanceId !== undefined && { instanceId }) };
  }

  async coordinator(): Promise<number> {
    for (let attempt = 0; this.#coordinator === undefined; attempt++) {
      const { code: answer, node } = await this.#cluster.coordinatorOf(this.#options.group);
      if (answer === code.none) this.#coordinator = node;
      else if (!coordinatorCodes.has(answer)) throw this.#refused(answer);
      else if (attempt === 100) {
        const text = `group ${this.#options.group} has no coordinator: ${codeText(answer)}`;
        throw new TransportDownError("connect", text);
      } else await sleep(this.#options.runtime, retryMs);
    }
    return this.#coordinator;
  }

  forgetCoordinator(): void {
    this.#coordinator = undefined;
  }

  /**
   * Runs until the signal is aborted, or until the group has not been reached for longer than the session. Then it
   * rejects; by that time all partitions were reported as lost.
   */
  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        await this.#join(signal);
        await this.#beat(signal);
      }
    } catch (error) {
      this.#lose("the group cannot be reached");
      throw error;
    }
  }

  /** Gives up the membership, so that others get the partitions at once. Never rejects. */
  async leave(): Promise<void> {
    const { instanceId, group } = this.#options;
    // A static member that restarts gets its partitions again.
    if (this.#memberId === "" || instanceId !== undefined) return;
    try {
      await this.#cluster.leave(await this.coordinator(), { group, memberId: this.#memberId });
    } catch {
      // The session expires.
    }
    this.#memberId = "";
    this.#generation = -1;
  }

  /** Joins until there is an assignment, and there is nothing to let go of for it. */
  async #join(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const assigned = await this.#patiently(() => this.#round());
      if (assigned === undefined) continue;
      const names = new Set(assigned.map(nameOf));
      const owned = new Set(this.#owned.map(nameOf));
      const gone = this.#owned.filter((each) => !names.has(nameOf(each)));
      this.#owned = assigned;
      if (gone.length > 0) await this.#listener.revoked(gone);
      const added = assigned.filter((each) => !owned.has(nameOf(each)));
      await this.#listener.assigned(added);
      // The group waits for this to give them to others.
      if (gone.length === 0) return;
    }
  }

  /** One round of joining. Undefined: another round is needed. */
  async #round(): Promise<readonly TopicPartition[] | undefined> {
    const node = await this.coordinator();
    const startedAt = this.#options.runtime.monotonic();
    const answer = await this.#cluster.join(node, {
      ...this.#who,
      sessionTimeoutMs: this.#options.sessionTimeoutMs,
      rebalanceTimeoutMs: this.#options.sessionTimeoutMs * 2,
      protocol: protocolName,
      metadata: encodeMember({ topics: this.#options.topics, owned: this.#owned, generation: this.#generation }),
    });
    if (!(await this.#accepted(answer.code, answer.memberId))) return undefined;
    this.#memberId = answer.memberId;
    this.#leads = answer.leaderId === answer.memberId;
    const assignments = this.#leads ? await this.#divide(answer) : [];
    const synced = await this.#cluster.sync(node, { ...this.#who, generation: answer.generation }, assignments);
    if (!(await this.#accepted(synced.code, answer.memberId))) return undefined;
    this.#generation = answer.generation;
    this.#knownAt = startedAt;
    this.#listener.alive();
    return decodeAssignment(synced.assignment);
  }

  async #divide({ members }: JoinAnswer) {
    const known = members.map(({ memberId, metadata }) => decodeMember(memberId, metadata));
    const topics = [...new Set(known.flatMap((member) => member.topics))];
    await this.#topics.refresh(topics);
    this.#counts = this.#countsOf(topics);
    const counts = new Map(topics.map((topic) => [topic, this.#topics.of(topic)?.leaders.length ?? 0]));
    return [...assign(known, counts)].map(([memberId, assigned]) => ({
      memberId,
      assignment: encodeAssignment(assigned),
    }));
  }

  #countsOf(topics: readonly string[]): string {
    return topics.map((topic) => `${topic}:${this.#topics.of(topic)?.leaders.length ?? 0}`).join();
  }

  /** Returns whether the request was accepted; otherwise prepares the next round. */
  async #accepted(answer: number, memberId: string): Promise<boolean> {
    switch (answer) {
      case code.none:
        return true;
      case code.memberIdRequired:
        this.#memberId = memberId;
        return false;
      case code.unknownMember:
        this.#lose("the group does not know this member any more");
        this.#memberId = "";
        return false;
      case code.illegalGeneration:
        this.#lose("the group went on without this member");
        return false;
      case code.rebalanceInProgress:
        return false;
      default:
        if (!coordinatorCodes.has(answer)) throw this.#refused(answer);
        this.forgetCoordinator();
        await sleep(this.#options.runtime, retryMs);
        return false;
    }
  }

  /** Heartbeats, until the group rebalances or this member is lost to it. */
  async #beat(signal: AbortSignal): Promise<void> {
    const { runtime, heartbeatMs } = this.#options;
    let refreshAt = runtime.monotonic() + refreshMs;
    while (!signal.aborted) {
      await sleep(runtime, heartbeatMs, signal);
      if (signal.aborted || this.identity === undefined) return;
      const startedAt = runtime.monotonic();
      const identity = this.identity;
      // A broker that does not answer must not keep this member from noticing that its session has ended.
      const left = this.#knownAt + this.#options.sessionTimeoutMs - startedAt;
      const cancel = runtime.schedule(() => this.#lose("the group was not reached for a whole session"), left);
      const answer = await this.#patiently(async () =>
        this.#cluster.heartbeat(await this.coordinator(), identity),
      ).finally(cancel);
      if (answer === undefined) continue;
      if (answer === code.none) {
        this.#knownAt = startedAt;
        this.#listener.alive();
      } else if (!(await this.#accepted(answer, this.#memberId))) return;
      if (startedAt >= refreshAt) {
        refreshAt = startedAt + refreshMs;
        if (await this.#hasNewPartitions()) return;
      }
    }
  }

  /** Only the leader looks: it divides the partitions. */
  async #hasNewPartitions(): Promise<boolean> {
    if (!this.#leads) return false;
    await this.#topics.refresh().catch(() => {});
    return this.#countsOf(this.#counts.split(",").map((each) => each.slice(0, each.lastIndexOf(":")))) !== this.#counts;
  }

  /**
   * Asks, and asks again while the coordinator cannot be reached. Undefined after a failure, so that the caller looks
   * at the state again. Rejects before the first answer, and once the session has ended: the group has then given the
   * partitions to others.
   */
  async #patiently<R>(ask: () => Promise<R>): Promise<R | undefined> {
    const { runtime, sessionTimeoutMs } = this.#options;
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof TransportDownError) || this.#generation === -1) throw error;
      this.forgetCoordinator();
      if (runtime.monotonic() - this.#knownAt > sessionTimeoutMs) throw error;
      this.#listener.failing(error);
      await sleep(runtime, retryMs);
      return undefined;
    }
  }

  #lose(why: string): void {
    const all = this.#owned;
    this.#owned = [];
    this.#generation = -1;
    if (all.length > 0) this.#listener.lost(all, why);
  }

  #refused(answer: number): PostboxError {
    const { group, place } = this.#options;
    if (answer === code.groupForbidden || answer === code.topicForbidden) {
      const text = `${place} does not let this user into group ${group}; grant the right to read group and topics`;
      return new ConfigError("transport-refused", text);
    }
    if (answer === code.fencedInstance) {
      const text = `another process is the member ${this.#options.instanceId} of group ${group}; give each its own`;
      return new ConfigError("transport-refused", text);
    }
    if (answer === 23) {
      const text = `the members of group ${group} divide its partitions otherwise than ${protocolName}; stop them`;
      return new ConfigError("topology-differs", text);
    }
    return new TransportDownError("connect", `group ${group} cannot be joined: ${codeText(answer)}`);
  }
}

const nameOf = ({ topic, partition }: TopicPartition) => `${topic}/${partition}`;
