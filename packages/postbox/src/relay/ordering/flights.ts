import type { Row } from "../../store.js";
import type { KeyQueue } from "./key-queue.js";

interface Flight {
  row: Row | undefined;
  /** The queue of its key, so that a landing need not look it up. Absent for rows without a key. */
  queue: KeyQueue | undefined;
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

  /** The queue that a row in flight departed from. */
  queueOf(row: Row): KeyQueue | undefined {
    const flight = this.#flights.get(row.position);
    return flight?.row === row ? flight.queue : undefined;
  }

  depart(row: Row, queue?: KeyQueue): void {
    const bytes = bytesOf(row);
    this.#flights.set(row.position, { row, queue, bytes });
    this.bytes += bytes;
    this.count++;
  }

  /** Returns the queue that the row departed from. */
  land(row: Row): KeyQueue | undefined {
    this.count--;
    const flight = this.#flights.get(row.position);
    if (flight?.row !== row) return undefined;
    const { queue } = flight;
    this.bytes -= flight.bytes;
    flight.row = undefined;
    flight.queue = undefined;
    this.#flights.delete(row.position);
    return queue;
  }

  get rows(): readonly Row[] {
    return [...this.#flights.values()].map(({ row }) => row as Row);
  }
}
