import type { ClientBase, QueryResult } from "pg";

/** What a `pg` client has beside its types. */
interface ConnectionParts {
  readonly stream: { cork?(): void; uncork?(): void };
  query(text: string): void;
  parse(statement: { readonly text: string }): void;
  bind(portal: object): void;
  execute(portal: object): void;
}

interface SubmittedQuery {
  text: string;
  values?: unknown[];
  submit(connection: ConnectionParts): Error | null;
  handleCommandComplete(message: unknown, connection: ConnectionParts): void;
}

type QueryClass = new (
  config: { text: string },
  values: undefined,
  callback: (error: Error | null, result: QueryResult) => void,
) => SubmittedQuery;

/** BEGIN in the queue of a client, and not yet sent: one round trip and one write to the socket carry it and the first statement. */
export interface HeldBegin {
  /** `held`: nothing was sent yet. `sent`: no answer has come. `over`: its client tells whether the transaction is open. */
  readonly state: "held" | "sent" | "over";
  /** Sends BEGIN and this statement together, and resolves to the statement's answer. Only while it is held. */
  sendWith(text: string, params: readonly unknown[]): Promise<QueryResult>;
  /** Sends BEGIN alone if it is still held. Settles when what was sent is answered; rejects if that was BEGIN alone, and it failed. */
  opened(): Promise<unknown>;
}

/**
 * Undefined where it cannot be held: on a client that is not the JavaScript one of `pg`, or one that sends each statement without waiting
 * for the answer to the one before it.
 */
export function holdBegin(client: ClientBase, begin: string): HeldBegin | undefined {
  const { Query } = client.constructor as { readonly Query?: QueryClass };
  const { pipeline } = client as { readonly pipeline?: boolean };
  if (typeof Query !== "function" || pipeline === true || !("connection" in client)) return undefined;

  let state: HeldBegin["state"] = "held";
  let connection: ConnectionParts | undefined;
  let query!: SubmittedQuery;
  const answered = new Promise<QueryResult>((resolve, reject) => {
    query = new Query({ text: begin }, undefined, (error, result) => {
      state = "over";
      if (error) reject(error);
      else resolve(result);
    });
  });
  // Whoever waits for the statement is told; nobody may wait for BEGIN alone.
  answered.catch(() => {});
  const submit = query.submit;
  query.submit = (given) => {
    connection = given;
    return null;
  };
  client.query(query as never);
  // It stands behind another statement, or the connection is lost: then `pg` sends it, or rejects it.
  if (connection === undefined) {
    state = "sent";
    query.submit = submit;
  }

  let isAlone = true;
  /** Only the first one who asks may send. */
  const take = (): ConnectionParts | undefined => {
    if (state !== "held") return undefined;
    state = "sent";
    return connection;
  };
  return {
    get state() {
      return state;
    },
    sendWith(text, params) {
      const taken = take() as ConnectionParts;
      isAlone = false;
      const { handleCommandComplete } = query;
      query.handleCommandComplete = () => {
        // BEGIN is complete; what follows is the statement's.
        query.handleCommandComplete = handleCommandComplete;
      };
      query.text = text;
      query.values = params as unknown[];
      taken.stream.cork?.();
      try {
        taken.parse({ text: begin });
        taken.bind({});
        taken.execute({});
        submit.call(query, taken);
      } finally {
        taken.stream.uncork?.();
      }
      return answered;
    },
    opened() {
      take()?.query(begin);
      return isAlone ? answered : answered.catch(() => {});
    },
  };
}
