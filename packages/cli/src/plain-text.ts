/**
 * Characters that a terminal acts upon: control characters, line breaks, changes of text direction. Data and errors may
 * quote an attacker's text.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the point.
const acting = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;

const escaped = (character: string) => `\\u${(character.codePointAt(0) as number).toString(16).padStart(4, "0")}`;

/** A text as one line that a terminal shows and does not act upon: such characters become `\u001b` and the like. */
export function plain(text: string): string {
  return text.replace(acting, escaped);
}

/** The same for each line of a text. */
function plainLines(text: string): string {
  return text.split("\n").map(plain).join("\n");
}

/** JSON that is safe on a terminal, too, and parses to the same value. */
export function plainJson(value: unknown, indent?: number): string {
  const json = JSON.stringify(value, undefined, indent) ?? "null";
  return plainLines(json);
}
