import type { Box, Lane, OwnOptions } from "postbox/store";
import type { JsonDatabase } from "./database.js";
import type { BoxState } from "./state.js";

/** Who owns the lanes of a box. */
export function lanes(database: JsonDatabase, name: string): Pick<Box, "renew" | "own" | "release"> {
  return {
    renew: (owner, leaseMs, order, signal) => {
      const renew = (box: BoxState, now: number) => {
        const beat = (box.members.get(owner)?.beat ?? 0) + 1;
        box.members.set(owner, { order, beat, leaseMs, expiresAt: now + leaseMs });
        forgetDeadMembers(box, now);
        const others = [...box.members].filter(([other]) => other !== owner);
        return {
          paused: box.pausedAt !== undefined,
          lanes: lanesOf(box, owner),
          others: others.map(([owner, { expiresAt, ...one }]) => ({ ...one, owner, expiresInMs: expiresAt - now })),
        };
      };
      return database.change(name, renew, signal);
    },

    own: (owner, most, options = {}, signal) => {
      const own = (box: BoxState, now: number) => {
        const mayOwn = box.pausedAt === undefined && isAlive(box, owner, now);
        const free = mayOwn ? freeLanes(box, owner, options, now).slice(0, most) : [];
        if (free.length < (options.least ?? 0)) return [];
        return free.map((lane) => {
          const { epoch, clean } = laneAt(box, lane);
          box.lanes[lane] = { epoch: epoch + 1, owner, clean: false };
          return { lane, epoch: epoch + 1, clean };
        });
      };
      return database.change(name, own, signal);
    },

    release: (owner, named, signal) => {
      const release = (box: BoxState) => {
        const given = lanesOf(box, owner).filter(({ lane, epoch }) => {
          return named === undefined || named.some((one) => one.lane === lane && one.epoch === epoch);
        });
        for (const { lane, epoch } of given) box.lanes[lane] = { epoch, clean: true };
        if (named === undefined) box.members.delete(owner);
      };
      return database.change(name, release, signal);
    },
  };
}

/** Those of `lanes` whose epoch is still the one that the caller took them with. */
export function standing(box: BoxState, lanes: readonly Lane[]): ReadonlySet<number> {
  return new Set(lanes.filter(({ lane, epoch }) => laneAt(box, lane).epoch === epoch).map(({ lane }) => lane));
}

/** A relay that has had a row in flight for too long loses the row's lane. */
export function takeAway(box: BoxState, lane: number): void {
  box.lanes[lane] = { epoch: laneAt(box, lane).epoch + 1, clean: false };
}

export function isAlive(box: BoxState, owner: string, now: number): boolean {
  return (box.members.get(owner)?.expiresAt ?? 0) > now;
}

/** The lanes without an owner whose lease stands. */
export function unowned(box: BoxState, now: number): number[] {
  return [...box.lanes.keys()].filter((lane) => {
    const { owner } = laneAt(box, lane);
    return owner === undefined || !isAlive(box, owner, now);
  });
}

function freeLanes(box: BoxState, owner: string, { dead = [], except = [] }: OwnOptions, now: number): number[] {
  const silent = dead.filter((one) => box.members.get(one.owner)?.beat === one.beat);
  const lost = silent.flatMap((one) => lanesOf(box, one.owner)).map(({ lane }) => lane);
  const own = lanesOf(box, owner).map(({ lane }) => lane);
  const free = new Set([...unowned(box, now), ...lost]);
  return [...free].filter((lane) => !except.includes(lane) && !own.includes(lane));
}

/** A member that has crashed stays until others have taken its lanes. */
function forgetDeadMembers(box: BoxState, now: number): void {
  for (const owner of box.members.keys()) {
    if (!isAlive(box, owner, now) && lanesOf(box, owner).length === 0) box.members.delete(owner);
  }
}

export function lanesOf(box: BoxState, owner: string): Lane[] {
  return box.lanes.flatMap(({ epoch, ...lane }, number) => (lane.owner === owner ? [{ lane: number, epoch }] : []));
}

function laneAt(box: BoxState, lane: number): BoxState["lanes"][number] {
  return box.lanes[lane] ?? { epoch: 0, clean: true };
}
