import type { GuardedStatement, TransactionExecutor } from "../store.js";

/** A statement with a place for a condition, which `text` puts there. Its texts are made once, not for each call. */
export function guardedStatement(text: (condition: string) => string): GuardedStatement {
  let known: { readonly condition: string; readonly text: string } | undefined;
  return {
    text: text("TRUE"),
    under(condition) {
      // A library has one condition for the statements with so many parameters.
      if (known?.condition !== condition) known = { condition, text: text(condition) };
      return known.text;
    },
  };
}

/** The text of a statement whose transaction is known to be open. */
export function textOf(statement: Parameters<TransactionExecutor>[0]): string {
  return typeof statement === "string" ? statement : statement.text;
}
