/**
 * Values in order of position, for a queue. Appending, removing near the front and reading the first few stay cheap
 * however many there are. A late position is inserted where it belongs.
 */
export class OrderedRows<Value> {
  readonly #values = new Map<number, Value>();
  /** Sorted. Removed positions stay until the next compaction, because removing each at once would be quadratic. */
  #positions: number[] = [];
  /** Everything before this index is removed, so reads start here. */
  #head = 0;

  get size(): number {
    return this.#values.size;
  }

  get(position: number): Value | undefined {
    return this.#values.get(position);
  }

  set(position: number, value: Value): void {
    this.#values.set(position, value);
    const last = this.#positions.at(-1);
    if (last === undefined || position > last) {
      this.#positions.push(position);
      return;
    }
    const index = this.#firstAtLeast(position);
    if (this.#positions[index] !== position) this.#positions.splice(index, 0, position);
    this.#head = Math.min(this.#head, index);
  }

  delete(position: number): Value | undefined {
    const value = this.#values.get(position);
    if (value === undefined) return undefined;
    this.#values.delete(position);
    if (this.#positions.length > 32 && this.#positions.length > 2 * this.#values.size) {
      this.#positions = this.#positions.filter((candidate) => this.#values.has(candidate));
      this.#head = 0;
    }
    return value;
  }

  /** At most `limit` values beyond position `after`, lowest first. */
  first(limit: number, after = 0): Value[] {
    const found: Value[] = [];
    while (this.#head < this.#positions.length && !this.#values.has(this.#positions[this.#head] as number))
      this.#head++;
    const start = after === 0 ? this.#head : Math.max(this.#head, this.#firstAtLeast(after + 1));
    for (let index = start; index < this.#positions.length && found.length < limit; index++) {
      const value = this.#values.get(this.#positions[index] as number);
      if (value !== undefined) found.push(value);
    }
    return found;
  }

  #firstAtLeast(position: number): number {
    let low = 0;
    let high = this.#positions.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#positions[middle] as number) < position) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
