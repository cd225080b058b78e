/** A member knows its place in its crowd, which sets it; -1 if it is in none. */
export interface Member {
  place: number;
}

/**
 * A set of members that come and go by the thousand, each in one crowd at a time. A Set or Map would burden the garbage
 * collector: each time it grows beyond its deleted entries, the old table keeps its contents alive until the next full
 * collection.
 */
export interface Crowd<T extends Member> extends Iterable<T> {
  readonly size: number;
  add(member: T): void;
  /** Removes a member, once. */
  remove(member: T): void;
}

export function createCrowd<T extends Member>(): Crowd<T> {
  const members: T[] = [];
  return {
    get size() {
      return members.length;
    },
    add(member) {
      member.place = members.length;
      members.push(member);
    },
    remove(member) {
      const last = members.pop() as T;
      if (last !== member) {
        members[member.place] = last;
        last.place = member.place;
      }
      member.place = -1;
    },
    [Symbol.iterator]: () => [...members].values(),
  };
}
