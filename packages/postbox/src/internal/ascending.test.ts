import fc from "fast-check";
import { expect, it } from "vitest";
import { insertAscending } from "./ascending.js";

it("keeps a list in ascending order, equals in the order in which they came", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(10)), (ranks) => {
      const items = ranks.map((rank, index) => ({ rank, index }));
      const list: typeof items = [];
      for (const item of items) insertAscending(list, item, ({ rank }) => rank);
      expect(list).toEqual([...items].sort((a, b) => a.rank - b.rank || a.index - b.index));
    }),
  );
});
