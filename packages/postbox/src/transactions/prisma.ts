import type { IsolationLevel, TransactionLibrary } from "../store.js";
import { defineTransactions, type Look } from "./define-transactions.js";
import { servedDialect } from "./served-dialect.js";

/** The part of a Prisma transaction that Postbox uses: the client that `$transaction` passes to its function. */
export interface PrismaTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: it accepts every value that it can send.
  $queryRawUnsafe<T>(text: string, ...params: any[]): PromiseLike<T>;
}

type PrismaIsolationLevel = "ReadCommitted" | "RepeatableRead" | "Serializable";

/** The part of a Prisma client that Postbox uses. */
export interface PrismaDatabase<Tx> {
  $transaction<R>(
    work: (tx: Tx) => Promise<R>,
    // biome-ignore lint/suspicious/noExplicitAny: each generated client declares its own type for the levels.
    options?: { isolationLevel?: any; maxWait?: number; timeout?: number },
  ): Promise<R>;
}

/** Excludes the client itself: it has every member of its transactions, but commits each statement by itself. */
export type InPrismaTransaction<Tx> = Tx & { readonly $connect?: undefined };

const levels: Readonly<Record<IsolationLevel, PrismaIsolationLevel>> = {
  "read committed": "ReadCommitted",
  "repeatable read": "RepeatableRead",
  serializable: "Serializable",
};

/**
 * Transactions of Prisma on PostgreSQL. The handle is the client that `prisma.$transaction` passes to its function;
 * nested transactions work too.
 *
 * `$transaction` times out after five seconds by default. `store.transaction` and handlers use the `timeout` and
 * `maxWait` of the client: `new PrismaClient({ transactionOptions })`.
 *
 * @example
 * ```ts
 * const store = postgresStore({ pool, transactions: prisma(client) });
 * await client.$transaction((tx) => createOutbox(store, { source: "/orders" }).in(tx).publish(OrderPlaced, order));
 * ```
 */
export function prisma<Tx extends PrismaTransaction>(
  client: PrismaDatabase<Tx>,
): TransactionLibrary<InPrismaTransaction<Tx>, "postgres"> {
  // The provider of its schema. Prisma exposes it nowhere else.
  servedDialect("prisma", (client as { readonly _activeProvider?: string })._activeProvider, ["postgres"]);
  return defineTransactions<InPrismaTransaction<Tx>>({
    name: "prisma",
    rightCall:
      "pass the tx of `prisma.$transaction(async (tx) => …)` " +
      "or of store.transaction((tx) => …), while its function runs",
    look,
    async query(tx, text, params) {
      const rows = await tx.$queryRawUnsafe<Record<string, unknown>[]>(text, ...params);
      return { rows, rowCount: rows.length };
    },
    // "Transaction API error": the transaction was closed, rolled back, or timed out.
    hasEnded: (error) => (error as { readonly code?: unknown } | null)?.code === "P2028",
    begin: (work, { isolation }) =>
      client.$transaction(
        (tx) => work(tx as InPrismaTransaction<Tx>),
        isolation && { isolationLevel: levels[isolation] },
      ),
  });
}

function look(value: unknown): Look {
  // Only the client itself has `$connect`.
  const { $connect, $queryRawUnsafe } = (value ?? {}) as Partial<Record<string, unknown>>;
  if (typeof $queryRawUnsafe !== "function" || $connect !== undefined) {
    return { not: "the client itself runs each statement outside of your transaction" };
  }
  // Prisma refuses statements after the end by itself.
  return "open";
}
