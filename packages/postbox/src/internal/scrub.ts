const gone = "***";

/**
 * The user-info of a URL. It begins at `://`: a pattern that began with the scheme would begin anew at every letter.
 */
const userInfo = /:\/\/[^\s/"'`<>\\]*@/g;
/** The same with an unescaped `/` in the password, which a port is not. Bounded, as it may run over the next URL. */
const userInfoWithSlash = /:\/\/[^\s/:@["'`<>\\]*:(?!\d{1,5}(?:[/?#]|$))[^\s"'`<>\\]{0,200}@/g;

/** What names a secret, whatever stands before it: `client_secret`, `DB_PASSWORD`, `x-api-key`. */
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
/**
 * How the name is quoted, and what stands between it and its value: `:`, `=`, `=>`, or a comma between two in quotes.
 */
const between = "(?:\\\\{0,3}[\"'`]|%22)?\\s{0,4}(?:=>|[:=]|%3[AD]|(?<=[\"']),(?=\\s{0,4}\\\\{0,3}[\"']))\\s{0,4}";
const beforeValue = new RegExp(`(?:${name})s?\\d{0,3}${between}`, "gi");

const openingQuote = /\\{0,3}["'`]/y;
/** Words with which a sentence about a secret goes on. */
const prose =
  "(?:must|should|may|can|cannot|is|was|are|has|not|no|too|at|in|of|or|and|for|invalid|missing|required|expected|unexpected|" +
  "failed|expired|wrong|bad|empty|null|undefined|true|false)\\b";
/** A value without quotes. The scheme of an authorization belongs to its credentials. */
const bareValue = new RegExp(
  `(?!${prose})(?:(?:bearer|basic|digest|negotiate|token|apikey|aws4-hmac-sha256)\\s{1,4})?[^\\s,;&"'\`<>]+`,
  "iy",
);

/** `Bearer` and what follows, unless that is a word for what kind of thing it is. */
const bearer = new RegExp(
  `\\bbearer\\s{1,4}(?!${prose}|(?:auth|token|scheme|credential|header|realm|challenge|method|access)\\w*)[\\w.~+/=-]{4,}`,
  "gi",
);
/** "Basic" is an ordinary word as well: only with what looks like base64. */
const basic = /\b(?:[Bb]asic|BASIC)\s{1,4}(?=[\w+/-]*(?:[0-9=+/]|[a-z][A-Z]))[\w+/-]{4,}=*/g;
const jsonWebToken = /(?<![\w-])eyJ[\w-]{8,}\.[\w-]+\.[\w-]*/g;

/**
 * What a terminal acts upon: C0 but for tab and line feed, DEL, C1 (U+009B begins an escape sequence as ESC [ does),
 * and what breaks a line or changes the direction of a text. An error may quote what an attacker wrote, and operators
 * read it in a terminal.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the point.
const controlCharacters = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;

/**
 * A text without control characters, and without the secrets that errors of drivers, brokers and HTTP clients tend to
 * carry: user-info in URLs, values of passwords, tokens and keys in the usual spellings, credentials of HTTP. Takes
 * time in proportion to the text. It is a net and no proof: a secret in plain prose goes through it.
 */
export function scrub(text: string): string {
  // First: one in the middle of a word would hide it from what follows.
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
    // Within a value that is gone already.
    if (match.index < done) continue;
    const [from, to] = valueAt(text, start);
    if (to === from) continue;
    clean += text.slice(done, from) + gone;
    done = to;
  }
  return clean + text.slice(done);
}

/** From where to where the value reaches that begins here, its quotes left out. */
function valueAt(text: string, start: number): [from: number, to: number] {
  const quote = matchAt(openingQuote, text, start);
  if (quote === "") return [start, start + matchAt(bareValue, text, start).length];
  const from = start + quote.length;
  const mark = quote.at(-1) as string;
  const level = quote.length - 1;
  for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
    if (endsAt(text, from, at, level)) return [from, Math.max(from, at - level)];
  }
  // Cut off in the middle: nobody knows where it would have ended.
  const line = text.indexOf("\n", from);
  return [from, line < 0 ? text.length : line];
}

/**
 * Whether this quote ends a value that began with `level` backslashes: none in a string, one in a string within a
 * string, three one deeper. A quote or a backslash of the value itself has that many more, and as many again.
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
