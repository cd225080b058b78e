import type { Box, Lane, LaneRead, Row } from "../../store.js";

/** The same box, whose lanes are numbered from 0, in a table where they begin at `first`. */
export function boxFromLane(first: number, box: Box): Box {
  if (first === 0) return box;
  const there = <L extends { readonly lane: number }>(one: L): L => ({ ...one, lane: one.lane + first });
  const back = <L extends { readonly lane: number }>(one: L): L => ({ ...one, lane: one.lane - first });
  const lanesBack = (lanes: ReadonlySet<number>) => new Set([...lanes].map((lane) => lane - first));
  return {
    async renew(...args) {
      const { lanes, ...rest } = await box.renew(...args);
      return { ...rest, lanes: lanes.map(back) };
    },
    async own(owner, most, { except = [], ...options } = {}, signal) {
      const moved = { ...options, except: except.map((lane) => lane + first) };
      return (await box.own(owner, most, moved, signal)).map(back);
    },
    release: (owner, lanes, signal) => box.release(owner, lanes?.map(there<Lane>), signal),
    async read(lanes, ...rest) {
      const { rows, more, ...found } = await box.read(lanes.map(there<LaneRead>), ...rest);
      return { ...found, rows: rows.map(back), more: lanesBack(more) };
    },
    due: async (lanes, ...rest) => (await box.due(lanes.map(there), ...rest)).map(back<Row>),
    async late(gaps, ...rest) {
      const { rows, ...found } = await box.late(gaps.map(there), ...rest);
      return { ...found, rows: rows.map(back) };
    },
    promote: (...args) => box.promote(...args),
    suspect: async (lanes, rows, signal) =>
      lanesBack(await box.suspect(lanes.map(there), rows.map(there<Row>), signal)),
    async settle(lanes, settlements, ...rest) {
      const moved = settlements.map((settlement) => ({ ...settlement, row: there(settlement.row) }));
      const settled = await box.settle(lanes.map(there), moved, ...rest);
      return { ...settled, standing: lanesBack(settled.standing) };
    },
  };
}

/** A box that has to be found first. */
export function boxFoundBy(find: () => Promise<Box>): Box {
  return {
    renew: async (...args) => (await find()).renew(...args),
    own: async (...args) => (await find()).own(...args),
    release: async (...args) => (await find()).release(...args),
    read: async (...args) => (await find()).read(...args),
    due: async (...args) => (await find()).due(...args),
    late: async (...args) => (await find()).late(...args),
    promote: async (...args) => (await find()).promote(...args),
    suspect: async (...args) => (await find()).suspect(...args),
    settle: async (...args) => (await find()).settle(...args),
  };
}
