/** Where something is in its crowd, which sets it; -1 in none. */
export interface Member {
  place: number;
}

/**
 * Things that come and go by the thousand, each in one crowd at a time. A Set or Map would do, but not for the garbage
 * collector: each time that one has grown over what was deleted from it, its old table keeps alive what it held until
 * the next full collection.
 */
export interface Crowd<T extends Member> extends Iterable<T> {
  readonly size: number;
  add(member: T): void;
  /** A member, once. */
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
