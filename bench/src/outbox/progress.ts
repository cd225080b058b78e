/** Counts rows and records when each count was reached. */
export interface Progress {
  readonly count: number;
  add(rows: number): void;
  /** The rows per second between two counts. */
  rate(from: number, to: number): number;
}

export function createProgress(): Progress {
  const marks: { readonly count: number; readonly at: number }[] = [];
  let count = 0;
  return {
    get count() {
      return count;
    },
    add(rows) {
      count += rows;
      marks.push({ count, at: performance.now() });
    },
    rate(from, to) {
      const first = marks.find((mark) => mark.count >= from);
      const last = marks.find((mark) => mark.count >= to);
      if (first === undefined || last === undefined || first === last) {
        throw new Error(`${count} rows in ${marks.length} steps: no rate from ${from} to ${to}`);
      }
      return (last.count - first.count) / ((last.at - first.at) / 1000);
    },
  };
}
