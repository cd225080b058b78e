import { PostboxError } from "postbox/store";

/** A transaction of a JSON store: your own values, each under a name, committed together with the messages that you publish. */
export class JsonTransaction {
  /** The file of its store. */
  readonly file: string;
  readonly #documents: Map<string, unknown>;
  #ended = false;

  constructor(file: string, documents: Map<string, unknown>) {
    this.file = file;
    this.#documents = documents;
  }

  /** A copy of the value of this name; undefined if there is none. */
  get(name: string): unknown {
    this.#requireOpen();
    return structuredClone(this.#documents.get(name));
  }

  /** Keeps what JSON makes of the value; undefined removes it. */
  set(name: string, value: unknown): void {
    this.#requireOpen();
    if (value === undefined) this.#documents.delete(name);
    else this.#documents.set(name, JSON.parse(JSON.stringify(value)));
  }

  /** Called by the database: from here on the handle can do nothing more. */
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
