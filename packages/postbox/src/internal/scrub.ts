const gone = "***";

/**
 * The user-info of a URL. The pattern begins at `://`: if it began with the scheme, it would restart at every letter.
 */
const userInfo = /:\/\/[^\s/"'`<>\\]*@/g;
/**
 * The same with an unescaped `/` in the password. A port is not taken for a password. The length is limited, since the
 * match may run into the next URL.
 */
const userInfoWithSlash = /:\/\/[^\s/:@["'`<>\\]*:(?!\d{1,5}(?:[/?#]|$))[^\s"'`<>\\]{0,200}@/g;

/** Names of secrets, with any prefix: `client_secret`, `DB_PASSWORD`, `x-api-key`. */
const name = [
  "pass(?:word|wd|phrase)",
  "pwd",
  "(?<![a-z])pass",
  "secret",
  "(?<!unexpected )token",
  "credential",
  "authorization",
  "(?:api|access|account|private|secret|signing)[-_ .]?key",
].join("|");
/** The quotes of the name, and the separator before its value: `:`, `=`, `=>`, or a comma between two quoted texts. */
const between = "(?:\\\\{0,3}[\"'`]|%22)?\\s{0,4}(?:=>|[:=]|%3[AD]|(?<=[\"']),(?=\\s{0,4}\\\\{0,3}[\"']))\\s{0,4}";
const beforeValue = new RegExp(`(?:${name})s?\\d{0,3}${between}`, "gi");

const openingQuote = /\\{0,3}["'`]/y;
/** Words that continue a sentence about a secret. */
const prose =
  "(?:must|should|may|can|cannot|is|was|are|has|not|no|too|at|in|of|or|and|for|invalid|missing|required|expected|unexpected|" +
  "failed|expired|wrong|bad|empty|null|undefined|true|false)\\b";
/** A value without quotes. The scheme of an authorization belongs to its credentials. */
const bareValue = new RegExp(
  `(?!${prose})(?:(?:bearer|basic|digest|negotiate|token|apikey|aws4-hmac-sha256)\\s{1,4})?[^\\s,;&"'\`<>]+`,
  "iy",
);

/** `Bearer` and the text after it, unless that is an ordinary word. */
const bearer = new RegExp(
  `\\bbearer\\s{1,4}(?!${prose}|(?:auth|token|scheme|credential|header|realm|challenge|method|access)\\w*)[\\w.~+/=-]{4,}`,
  "gi",
);
/** "Basic" is also an ordinary word, so it counts only before something like base64. */
const basic = /\b(?:[Bb]asic|BASIC)\s{1,4}(?=[\w+/-]*(?:[0-9=+/]|[a-z][A-Z]))[\w+/-]{4,}=*/g;
const jsonWebToken = /(?<![\w-])eyJ[\w-]{8,}\.[\w-]+\.[\w-]*/g;

/**
 * Characters that a terminal acts upon: C0 except tab and line feed, DEL, C1 (U+009B begins an escape sequence as ESC [
 * does), line breaks, and changes of text direction. An error may quote an attacker's text, and operators read it in a
 * terminal.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the point.
const controlCharacters = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;

/**
 * Removes control characters, and the secrets that errors of drivers, brokers and HTTP clients tend to contain:
 * user-info in URLs, values of passwords, tokens and keys in the usual notations, HTTP credentials. Runs in linear
 * time. It is a safety net, not a proof: a secret in plain prose passes.
 *
 * @example
 * ```ts
 * console.error(scrub("cannot connect to amqp://ann:secret@host")); // cannot connect to amqp://***@host
 * ```
 */
export function scrub(text: string): string {
  // First, since a control character within a word would hide it from the patterns below.
  const plain = text.replace(controlCharacters, "");
  const withoutUrls = plain.replace(userInfo, `://${gone}@`).replace(userInfoWithSlash, `://${gone}@`);
  return withoutValues(withoutUrls)
    .replace(bearer, `Bearer ${gone}`)
    .replace(basic, `Basic ${gone}`)
    .replace(jsonWebToken, gone);
}

function withoutValues(text: string): string {
  let clean = "";
  let done = 0;
  for (const match of text.matchAll(beforeValue)) {
    const start = match.index + match[0].length;
    // Within a value that is removed already.
    if (match.index < done) continue;
    const [from, to] = valueAt(text, start);
    if (to === from) continue;
    clean += text.slice(done, from) + gone;
    done = to;
  }
  return clean + text.slice(done);
}

/** The start and end of the value that begins here, without its quotes. */
function valueAt(text: string, start: number): [from: number, to: number] {
  const quote = matchAt(openingQuote, text, start);
  if (quote === "") return [start, start + matchAt(bareValue, text, start).length];
  const from = start + quote.length;
  const mark = quote.at(-1) as string;
  const level = quote.length - 1;
  for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
    if (endsAt(text, from, at, level)) return [from, Math.max(from, at - level)];
  }
  // The text was cut off: the end of the value is unknown.
  const line = text.indexOf("\n", from);
  return [from, line < 0 ? text.length : line];
}

/**
 * Whether this quote ends a value whose opening quote has `level` backslashes before it: none in a string, one in a
 * string within a string, three one level deeper. An escaped quote or backslash inside the value has more.
 */
function endsAt(text: string, from: number, at: number, level: number): boolean {
  let backslashes = 0;
  while (at - backslashes > from && text[at - backslashes - 1] === "\\") backslashes++;
  return (backslashes - level) % (2 * (level + 1)) === 0;
}

function matchAt(pattern: RegExp, text: string, index: number): string {
  pattern.lastIndex = index;
  return pattern.exec(text)?.[0] ?? "";
}
