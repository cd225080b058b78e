import type { ClientBase } from "pg";
import type { Executor } from "../store.js";

type Answer = Awaited<ReturnType<Executor>>;

/** What a `pg` client has beside its types. */
interface ConnectionParts {
  readonly stream: { cork?(): void; uncork?(): void };
  query(text: string): void;
  parse(statement: { readonly text: string }): void;
  bind(portal: object): void;
  execute(portal: object): void;
}

interface PgQuery {
  text: string;
  values?: readonly unknown[];
  submit(connection: ConnectionParts): Error | null;
  handleCommandComplete(message: unknown, connection: ConnectionParts): void;
}

type Answered = (
  error: Error | null,
  result: { readonly rows: Answer["rows"]; readonly rowCount: number | null },
) => void;
type QueryClass = new (config: { text: string }, values: undefined, callback: Answered) => PgQuery;

/** BEGIN in the queue of a client, and not yet sent: one round trip and one write to the socket carry it and the first statement. */
export interface HeldBegin {
  /** `held`: nothing was sent yet. `sent`: no answer has come. `over`: its client tells whether the transaction is open. */
  readonly state: "held" | "sent" | "over";
  /** Whether what was sent has failed: the client may not know yet in which state that leaves the transaction. */
  readonly failed: boolean;
  /** Sends BEGIN and this statement together, and resolves to the statement's answer. Only while it is held. */
  sendWith(text: string, params: readonly unknown[]): Promise<Answer>;
  /** Sends BEGIN alone, if it is still held. */
  sendAlone(): void;
  /** Resolves when what was sent is answered; rejects if that was BEGIN alone, and it failed. Nothing where there is nothing to wait for. */
  opened(): Promise<void> | undefined;
}

type HeldBeginClass = new (client: ClientBase, begin: string) => HeldBegin;

/** Of each copy of `pg` that is loaded. */
const classes = new WeakMap<QueryClass, HeldBeginClass>();

/**
 * Undefined where it cannot be held: on a client that is not the JavaScript one of `pg`, or one that sends each statement without waiting
 * for the answer to the one before it.
 */
export function holdBegin(client: ClientBase, begin: string): HeldBegin | undefined {
  const { Query } = client.constructor as { readonly Query?: QueryClass };
  const { pipeline } = client as { readonly pipeline?: boolean };
  if (typeof Query !== "function" || pipeline === true || !("connection" in client)) return undefined;
  let Held = classes.get(Query);
  if (Held === undefined) {
    Held = heldBeginOn(Query);
    classes.set(Query, Held);
  }
  return new Held(client, begin);
}

/** A class, and not closures: one is made for every message that is handled. */
function heldBeginOn(Query: QueryClass): HeldBeginClass {
  return class extends Query implements HeldBegin {
    state: HeldBegin["state"] = "held";
    readonly #begin: string;
    #connection: ConnectionParts | undefined;
    #isAlone = true;
    #isBegun = false;
    #failure: Error | undefined;
    #resolve: ((answer: Answer) => void) | undefined;
    #reject: ((error: Error) => void) | undefined;
    #over: Promise<void> | undefined;
    #resolveOver: (() => void) | undefined;

    constructor(client: ClientBase, begin: string) {
      super({ text: begin }, undefined, (error, result) => this.#answered(error, result));
      this.#begin = begin;
      client.query(this as never);
      // It stands behind another statement, or the connection is lost: then `pg` sends it, or rejects it.
      if (this.#connection === undefined) this.state = "sent";
    }

    get failed(): boolean {
      return this.#failure !== undefined;
    }

    override submit(connection: ConnectionParts): Error | null {
      if (this.state === "sent") return super.submit(connection);
      this.#connection = connection;
      return null;
    }

    override handleCommandComplete(message: unknown, connection: ConnectionParts): void {
      // BEGIN is complete; what follows is the statement's.
      if (!this.#isAlone && !this.#isBegun) this.#isBegun = true;
      else super.handleCommandComplete(message, connection);
    }

    sendWith(text: string, params: readonly unknown[]): Promise<Answer> {
      const connection = this.#connection as ConnectionParts;
      this.state = "sent";
      this.#isAlone = false;
      this.text = text;
      this.values = params;
      const answer = new Promise<Answer>((resolve, reject) => {
        this.#resolve = resolve;
        this.#reject = reject;
      });
      connection.stream.cork?.();
      try {
        connection.parse({ text: this.#begin });
        connection.bind({});
        connection.execute({});
        super.submit(connection);
      } finally {
        connection.stream.uncork?.();
      }
      return answer;
    }

    sendAlone(): void {
      if (this.state !== "held") return;
      this.state = "sent";
      this.#connection?.query(this.#begin);
    }

    opened(): Promise<void> | undefined {
      if (this.state === "over") {
        return this.#isAlone && this.#failure !== undefined ? Promise.reject(this.#failure) : undefined;
      }
      this.#over ??= new Promise((resolve) => {
        this.#resolveOver = resolve;
      });
      return this.#over.then(() => this.opened());
    }

    #answered(error: Error | null, result: Parameters<Answered>[1]): void {
      if (this.state === "over") return;
      this.state = "over";
      if (error) {
        this.#failure = error;
        this.#reject?.(error);
      } else this.#resolve?.({ rows: result.rows, rowCount: result.rowCount ?? 0 });
      this.#resolveOver?.();
    }
  };
}
