const maxBytes = 2048;

/** An error's text as it is stored: at most 2 KB, cut between characters, and without NUL, which Postgres refuses. */
export function errorText(text: string): string {
  const bytes = Buffer.from(text.replaceAll("\0", ""), "utf8");
  // A stream decoder keeps back a character that is not complete.
  return new TextDecoder().decode(bytes.subarray(0, maxBytes), { stream: true });
}
