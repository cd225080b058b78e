import type { IsolationLevel, TransactionLibrary } from "../store.js";
import { defineTransactions, type Look } from "./define-transactions.js";
import { requireServed } from "./served-dialect.js";

/** What is needed of a Prisma transaction: the client that `$transaction` hands to its function. */
export interface PrismaTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: it takes whatever it can send.
  $queryRawUnsafe<T>(text: string, ...params: any[]): PromiseLike<T>;
}

type PrismaIsolationLevel = "ReadCommitted" | "RepeatableRead" | "Serializable";

/** What is needed of a Prisma client. */
export interface PrismaDatabase<Tx> {
  $transaction<R>(
    work: (tx: Tx) => Promise<R>,
    // biome-ignore lint/suspicious/noExplicitAny: each generated client has a type of its own for the levels.
    options?: { isolationLevel?: any; maxWait?: number; timeout?: number },
  ): Promise<R>;
}

/** The client itself has all that its transactions have, but commits each statement on its own: this does not let it pass. */
export type InPrismaTransaction<Tx> = Tx & { readonly $connect?: undefined };

const levels: Readonly<Record<IsolationLevel, PrismaIsolationLevel>> = {
  "read committed": "ReadCommitted",
  "repeatable read": "RepeatableRead",
  serializable: "Serializable",
};

/**
 * Transactions of Prisma, today on PostgreSQL only: the handle is the client that `prisma.$transaction` hands to its function, also that
 * of a nested one.
 *
 * ```ts
 * const store = postgresStore({ pool, transactions: prisma(client) });
 * ```
 *
 * `$transaction` gives up after five seconds by default; its `timeout` and `maxWait` for `store.transaction` and for handlers
 * are those of the client, `new PrismaClient({ transactionOptions })`.
 */
export function prisma<Tx extends PrismaTransaction>(
  client: PrismaDatabase<Tx>,
): TransactionLibrary<InPrismaTransaction<Tx>, "postgres"> {
  // The provider of its schema. Prisma has no other name for it that can be read.
  requireServed("prisma", (client as { readonly _activeProvider?: string })._activeProvider);
  return defineTransactions<InPrismaTransaction<Tx>>({
    name: "prisma",
    rightCall:
      "pass the tx of `prisma.$transaction(async (tx) => …)` or of store.transaction((tx) => …), while its function runs",
    look,
    async query(tx, text, params) {
      const rows = await tx.$queryRawUnsafe<Record<string, unknown>[]>(text, ...params);
      return { rows, rowCount: rows.length };
    },
    // "Transaction API error": it is closed, was rolled back, or took too long.
    hasEnded: (error) => (error as { readonly code?: unknown } | null)?.code === "P2028",
    begin: (work, { isolation }) =>
      client.$transaction(
        (tx) => work(tx as InPrismaTransaction<Tx>),
        isolation && { isolationLevel: levels[isolation] },
      ),
  });
}

function look(value: unknown): Look {
  // Only the client itself can connect.
  const { $connect, $queryRawUnsafe } = (value ?? {}) as Partial<Record<string, unknown>>;
  if (typeof $queryRawUnsafe !== "function" || $connect !== undefined) {
    return { not: "the client itself runs each statement outside of your transaction" };
  }
  // It refuses by itself what comes after its end.
  return "open";
}
