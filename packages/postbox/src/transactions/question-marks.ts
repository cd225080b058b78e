/** The parts of a statement that matter here: literals, quoted names, placeholders and question marks. */
const parts = /'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\d+)|\?/g;

export interface QuestionMarks {
  readonly text: string;
  readonly params: readonly unknown[];
}

/**
 * Rewrites a statement with `$n` for a library that takes `?`, with one value per mark, in order. Every other question
 * mark becomes `\?`, even inside quotes, because these libraries look for marks there too.
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
