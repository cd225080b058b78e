import fc from "fast-check";
import { expect, it } from "vitest";
import { createCrowd } from "./crowd.js";

it("holds what came and has not gone, in any order", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(20)), (numbers) => {
      const crowd = createCrowd<{ place: number; readonly n: number }>();
      const members = Array.from({ length: 21 }, (_, n) => ({ place: -1, n }));
      const model = new Set<number>();
      for (const n of numbers) {
        const member = members[n] as (typeof members)[number];
        if (model.delete(n)) crowd.remove(member);
        else {
          model.add(n);
          crowd.add(member);
        }
      }
      expect(crowd.size).toBe(model.size);
      expect([...crowd].map(({ n }) => n).sort()).toEqual([...model].sort());
    }),
  );
});

it("may change while it is walked", () => {
  const crowd = createCrowd<{ place: number }>();
  for (const place of [-1, -1, -1]) crowd.add({ place });
  let walked = 0;
  for (const member of crowd) {
    walked++;
    crowd.remove(member);
  }
  expect([walked, crowd.size]).toEqual([3, 0]);
});
