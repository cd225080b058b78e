const maxBytes = 2048;

/**
 * An error's text in the form in which it is stored: at most 2 KB, cut between characters, and without NUL, which
 * PostgreSQL refuses.
 */
export function errorText(text: string): string {
  const bytes = Buffer.from(text.replaceAll("\0", ""), "utf8");
  // A streaming decoder withholds an incomplete character.
  return new TextDecoder().decode(bytes.subarray(0, maxBytes), { stream: true });
}
