import type { GuardedStatement, TransactionExecutor } from "../store.js";

/**
 * A statement with a place for a condition, which `text` inserts. The text is made once, not for every call.
 *
 * @example
 * ```ts
 * const append = guardedStatement((condition) => `INSERT INTO message (id) SELECT $1 ${condition}`);
 * ```
 */
export function guardedStatement(text: (condition: string) => string): GuardedStatement {
  let known: { readonly condition: string; readonly text: string } | undefined;
  return {
    text: text("TRUE"),
    under(condition) {
      // A library uses the same condition for all statements with this number of parameters.
      if (known?.condition !== condition) known = { condition, text: text(condition) };
      return known.text;
    },
  };
}

/** The text of a statement for a transaction that is known to be open. */
export function textOf(statement: Parameters<TransactionExecutor>[0]): string {
  return typeof statement === "string" ? statement : statement.text;
}
