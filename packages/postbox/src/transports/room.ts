export interface RoomLimits {
  /** The most deliveries that are unsettled at a time. */
  readonly prefetch: number;
  /** The most bytes that are unsettled at a time. */
  readonly prefetchBytes: number;
}

/**
 * How much of a queue, or of a stream, may be handed over and not settled yet. A message that is larger than the bound
 * fits when nothing else is unsettled: otherwise it would never be delivered.
 */
export class Room {
  readonly #limits: RoomLimits;
  #taken = 0;
  #bytes = 0;

  constructor(limits: RoomLimits) {
    this.#limits = limits;
  }

  /** How many deliveries are unsettled. */
  get taken(): number {
    return this.#taken;
  }

  fits(bytes: number): boolean {
    const { prefetch, prefetchBytes } = this.#limits;
    return this.#taken === 0 || (this.#taken < prefetch && this.#bytes + bytes <= prefetchBytes);
  }

  /** A message of this size was handed over. */
  take(bytes: number): void {
    this.#taken++;
    this.#bytes += bytes;
  }

  /** It was settled. */
  free(bytes: number): void {
    this.#taken--;
    this.#bytes -= bytes;
  }
}
