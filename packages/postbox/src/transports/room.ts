/** The limits of a `Room`. */
export interface RoomLimits {
  /** The most unsettled deliveries at a time. */
  readonly prefetch: number;
  /** The most bytes of unsettled deliveries at a time. */
  readonly prefetchBytes: number;
}

/**
 * Limits the unsettled deliveries of a queue or stream. A message that is larger than the limit fits if nothing else is
 * unsettled: otherwise it would never be delivered.
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

  /** A message of this size was delivered. */
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
