/**
 * Values by position, in order of position. Made for a queue: adding at the end, removing near the front and reading the
 * first few stay cheap however many there are; a late position is slotted in where it belongs.
 */
export class OrderedRows<Value> {
  readonly #values = new Map<number, Value>();
  /** Sorted. A removed position stays until the next compaction, since taking each out at once would be quadratic. */
  #positions: number[] = [];
  /** Everything before this index is removed; reading starts here. */
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
