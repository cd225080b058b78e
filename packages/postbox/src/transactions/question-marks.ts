/** What a statement is made of, as far as it matters here: literals and names in quotes, placeholders, question marks. */
const parts = /'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\d+)|\?/g;

export interface QuestionMarks {
  readonly text: string;
  readonly params: readonly unknown[];
}

/**
 * A statement with `$n` for a library that wants `?`, each with its own value, in their order. A question mark that is none of
 * them is written as `\?`, also inside of quotes: there these libraries look for them, too.
 */
export function withQuestionMarks(text: string, params: readonly unknown[]): QuestionMarks {
  const inOrder: unknown[] = [];
  const written = text.replace(parts, (part, number?: string) => {
    if (number === undefined) return part.replaceAll("?", "\\?");
    inOrder.push(params[Number(number) - 1]);
    return "?";
  });
  return { text: written, params: inOrder };
}
