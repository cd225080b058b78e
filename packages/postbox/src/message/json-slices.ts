/*
 * Finds the source text of the parts of a JSON document, so that they can be passed on byte for byte. `membersOf` and
 * `elementsOf` expect a text that JSON.parse has already accepted, so they check very little.
 */

/**
 * Whether a JSON object has more members than `most`, not counting those of its values. Takes any text, and reads no
 * more of it than necessary.
 */
export function hasMoreMembersThan(text: string, most: number): boolean {
  // A member with its comma takes five characters.
  if (text.length < 5 * most) return false;
  let [depth, members, inString] = [0, 1, false];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === backslash) at++;
    else if (code === quote) inString = !inString;
    else if (inString) continue;
    else if (code === openBrace || code === openBracket) depth++;
    else if (code === closeBrace || code === closeBracket) depth--;
    else if (code === comma && depth === 1 && ++members > most) return true;
  }
  return false;
}

const [quote, comma, backslash, openBracket, closeBracket, openBrace, closeBrace] = [34, 44, 92, 91, 93, 123, 125];

/** The text of each member's value of a JSON object. The last one of a repeated name counts, as in JSON.parse. */
export function membersOf(text: string): ReadonlyMap<string, string> {
  const members = new Map<string, string>();
  let at = skipSpace(text, text.indexOf("{") + 1);
  while (text[at] !== "}") {
    const nameEnd = endOfValue(text, at);
    const start = skipSpace(text, text.indexOf(":", nameEnd) + 1);
    const end = endOfValue(text, start);
    members.set(JSON.parse(text.slice(at, nameEnd)), text.slice(start, end));
    at = skipComma(text, end);
  }
  return members;
}

/** The text of each element of a JSON array. */
export function elementsOf(text: string): readonly string[] {
  const elements: string[] = [];
  let at = skipSpace(text, text.indexOf("[") + 1);
  while (text[at] !== "]") {
    const end = endOfValue(text, at);
    elements.push(text.slice(at, end));
    at = skipComma(text, end);
  }
  return elements;
}

function endOfValue(text: string, start: number): number {
  if (text[start] === '"') return endOfString(text, start);
  if (text[start] !== "{" && text[start] !== "[") {
    let at = start;
    while (at < text.length && !/[\s,\]}]/.test(text[at] as string)) at++;
    return at;
  }
  let depth = 0;
  for (let at = start; ; at++) {
    const character = text[at];
    if (character === '"') at = endOfString(text, at) - 1;
    else if (character === "{" || character === "[") depth++;
    else if ((character === "}" || character === "]") && --depth === 0) return at + 1;
  }
}

function endOfString(text: string, start: number): number {
  let at = start + 1;
  while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

function skipComma(text: string, at: number): number {
  const next = skipSpace(text, at);
  return text[next] === "," ? skipSpace(text, next + 1) : next;
}

function skipSpace(text: string, at: number): number {
  let next = at;
  while (/\s/.test(text[next] ?? "")) next++;
  return next;
}
