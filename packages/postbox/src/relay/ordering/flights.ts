import type { Row } from "../../store.js";

interface Flight {
  row: Row | undefined;
  /** Measured at the start of the flight: a sender may have transferred the buffer of the data. */
  readonly bytes: number;
}

/** An estimate: 512 bytes for the attributes and the objects around them. */
export function bytesOf({ message }: Row): number {
  return message.data.byteLength + 512;
}

/** The rows in flight, by position, which is unique in a box. */
export class Flights {
  /** Landing clears the row of its entry: a Map that grows over deleted entries keeps their values alive for long. */
  readonly #flights = new Map<number, Flight>();
  count = 0;
  bytes = 0;

  has(row: Row): boolean {
    return this.#flights.get(row.position)?.row === row;
  }

  depart(row: Row): void {
    const bytes = bytesOf(row);
    this.#flights.set(row.position, { row, bytes });
    this.bytes += bytes;
    this.count++;
  }

  land(row: Row): void {
    this.count--;
    const flight = this.#flights.get(row.position);
    if (flight?.row !== row) return;
    this.bytes -= flight.bytes;
    flight.row = undefined;
    this.#flights.delete(row.position);
  }

  get rows(): readonly Row[] {
    return [...this.#flights.values()].map(({ row }) => row as Row);
  }
}
