import type { ClientBase } from "pg";
import type { Executor } from "../store.js";

type Answer = Awaited<ReturnType<Executor>>;

/** What a `pg` connection has beyond its types. */
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

/**
 * A BEGIN that is queued on a client but not sent yet. It shares one socket write and one round trip with the first
 * statement.
 */
export interface HeldBegin {
  /**
   * `held`: nothing was sent. `sent`: sent, not answered. `over`: answered; ask the client whether the transaction is
   * open.
   */
  readonly state: "held" | "sent" | "over";
  /** Whether what was sent has failed. The client's transaction status may lag behind at that moment. */
  readonly failed: boolean;
  /**
   * Sends BEGIN and this statement together, and resolves to the statement's result. Call it only while `state` is
   * "held".
   */
  sendWith(text: string, params: readonly unknown[]): Promise<Answer>;
  /** Sends BEGIN alone, if it is still held. */
  sendAlone(): void;
  /**
   * Resolves when what was sent is answered. Rejects if only BEGIN was sent and it failed. Undefined if there is
   * nothing to wait for.
   */
  opened(): Promise<void> | undefined;
}

interface Holdable extends HeldBegin {
  /**
   * Whether the client queued it unchanged. A tracer that wraps `client.query` may return something else or freeze its
   * argument.
   */
  readonly isTaken: boolean;
}

type HoldableClass = new (client: ClientBase, begin: string) => Holdable;

/** One class for each loaded copy of `pg`; `never` if its clients turned out to be wrapped. */
const classes = new WeakMap<QueryClass, HoldableClass | "never">();

/**
 * Queues a BEGIN that is held back. Returns undefined if that is not possible: the client is not the JavaScript client
 * of `pg`, its `query` is wrapped, or it pipelines statements.
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

/** A class instead of closures, because one instance is created for every handled message. */
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
      // A wrapper may have refused the query. Whatever else the wrapper returns is ignored, because `pg` answers the
      // query itself.
      if (answer instanceof Promise) answer.catch((error) => this.#connection ?? this.#answered(error));
      // Another statement is ahead of it, or the connection is lost. Then `pg` sends or rejects it by itself.
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
      // The first CommandComplete answers BEGIN, the next one the statement.
      if (!this.#isAlone && !this.#isBegun) this.#isBegun = true;
      else super.handleCommandComplete(message, connection);
    }

    sendWith(text: string, params: readonly unknown[]): Promise<Answer> {
      const connection = this.#connection as ConnectionParts;
      this.state = "sent";
      this.#isAlone = false;
      this.text = text;
      this.values = params;
      // Required even without values: in the simple protocol, each statement would be answered with its own
      // ReadyForQuery.
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
        // The server waits for Sync before it answers. BEGIN is answered then, and the statement has failed.
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
