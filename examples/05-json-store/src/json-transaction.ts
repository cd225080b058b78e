import { PostboxError } from "postbox/store";

/** A transaction of a JSON store. It commits your own named values together with the messages that you publish. */
export class JsonTransaction {
  /** Path of the store's file. */
  readonly file: string;
  readonly #documents: Map<string, unknown>;
  #ended = false;

  constructor(file: string, documents: Map<string, unknown>) {
    this.file = file;
    this.#documents = documents;
  }

  /** Returns a copy of the value with this name, or undefined if there is none. */
  get(name: string): unknown {
    this.#requireOpen();
    return structuredClone(this.#documents.get(name));
  }

  /** Stores the value as JSON represents it; undefined removes it. */
  set(name: string, value: unknown): void {
    this.#requireOpen();
    if (value === undefined) this.#documents.delete(name);
    else this.#documents.set(name, JSON.parse(JSON.stringify(value)));
  }

  /** Called by the database: every later use of the handle throws. */
  end(): void {
    this.#ended = true;
  }

  #requireOpen(): void {
    if (!this.#ended) return;
    throw new PostboxError(
      "not-a-transaction",
      "this transaction has ended: its function has returned; await everything that the function starts",
    );
  }
}
