import type { Connection, Submittable } from "pg";
import { gate } from "../gate.js";

/** Members of a `pg` connection that its types omit. */
interface Portals extends Connection {
  close(target: { readonly type: "P"; readonly name: string }): void;
}

/** A portal as `pg-cursor` opens one: it blocks everything behind it on its connection until it is closed. */
export class RowCursor implements Submittable {
  /** "done" once it was asked to close, as in `pg-cursor`. */
  state = "busy";
  readonly #text: string;
  readonly #read = gate();
  #connection: Portals | undefined;

  constructor(text: string) {
    this.#text = text;
  }

  /** Resolves when the first row was read. */
  get read(): Promise<void> {
    return this.#read.opened;
  }

  submit(connection: Connection): void {
    this.#connection = connection as Portals;
    connection.parse({ name: "", text: this.#text, types: [] }, true);
    connection.bind({ portal: "rows" }, true);
    connection.execute({ portal: "rows", rows: "1" }, true);
    connection.flush();
  }

  /** Starts to close it. It is closed when the client is idle. */
  close(): void {
    this.state = "done";
    this.#connection?.close({ type: "P", name: "rows" });
    this.#connection?.sync();
  }

  handleDataRow(): void {}

  handlePortalSuspended(): void {
    this.#read.open();
  }

  handleCommandComplete(): void {
    this.close();
  }

  handleReadyForQuery(): void {}

  handleError(): void {
    this.#connection?.sync();
  }
}
