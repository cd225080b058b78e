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
  sync(): void;
}

interface PgQuery {
  text: string;
  values?: readonly unknown[];
  queryMode?: string;
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

interface Holdable extends HeldBegin {
  /** Whether the client took it as `pg` does. A tracer that wraps `client.query` may answer something else, or lock what it was given. */
  readonly isTaken: boolean;
}

type HoldableClass = new (client: ClientBase, begin: string) => Holdable;

/** Of each copy of `pg` that is loaded; `never` once its clients turned out to be wrapped. */
const classes = new WeakMap<QueryClass, HoldableClass | "never">();

/**
 * Undefined where it cannot be held: on a client that is not the JavaScript one of `pg`, whose `query` was wrapped, or which sends each
 * statement without waiting for the answer to the one before it.
 */
export function holdBegin(client: ClientBase, begin: string): HeldBegin | undefined {
  const { Query } = client.constructor as { readonly Query?: QueryClass };
  const { pipeline } = client as { readonly pipeline?: boolean };
  if (typeof Query !== "function" || pipeline === true || !("connection" in client)) return undefined;
  let Held = classes.get(Query);
  if (Held === "never") return undefined;
  if (Held === undefined) {
    Held = heldBeginOn(Query);
    classes.set(Query, Held);
  }
  const held = new Held(client, begin);
  if (!held.isTaken) {
    classes.set(Query, "never");
    held.sendAlone();
  }
  return held;
}

/** A class, and not closures: one is made for every message that is handled. */
function heldBeginOn(Query: QueryClass): HoldableClass {
  return class extends Query implements Holdable {
    state: HeldBegin["state"] = "held";
    readonly isTaken: boolean;
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
      const answer: unknown = client.query(this as never);
      this.isTaken = answer === this && isWritable(this, "text") && isWritable(this, "values");
      // A wrapper may have refused it. What else it makes of it is its own affair: `pg` answers what it has got.
      if (answer instanceof Promise) answer.catch((error) => this.#connection ?? this.#answered(error));
      // It stands behind another statement, or the connection is lost: then `pg` sends it, or rejects it.
      if (this.state === "held" && this.#connection === undefined) this.state = "sent";
    }

    get failed(): boolean {
      return this.#failure !== undefined;
    }

    override submit(connection: ConnectionParts): Error | null {
      this.#connection = connection;
      return this.state === "sent" ? super.submit(connection) : null;
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
      // Also without values: the simple protocol has an end of its own for each statement.
      this.queryMode = "extended";
      const answer = new Promise<Answer>((resolve, reject) => {
        this.#resolve = resolve;
        this.#reject = reject;
      });
      connection.stream.cork?.();
      try {
        connection.parse({ text: this.#begin });
        connection.bind({});
        connection.execute({});
        const refused = super.submit(connection);
        if (refused) throw refused;
      } catch (error) {
        // The server waits for the end of what it got: BEGIN is answered then, and the statement has failed.
        connection.sync();
        this.#fail(error as Error);
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

    #fail(error: Error): void {
      this.#failure ??= error;
      this.#reject?.(error);
    }

    #answered(error: Error | null, result?: Parameters<Answered>[1]): void {
      if (this.state === "over") return;
      this.state = "over";
      if (error) this.#fail(error);
      else this.#resolve?.({ rows: result?.rows ?? [], rowCount: result?.rowCount ?? 0 });
      this.#resolveOver?.();
    }
  };
}

function isWritable(query: object, name: string): boolean {
  const property = Object.getOwnPropertyDescriptor(query, name);
  return property === undefined || property.writable === true || property.set !== undefined;
}
