/*
 * Finds the source text of the parts of a JSON document, so that they can be passed on byte for byte.
 * Both functions expect a text that JSON.parse has accepted already; that is why so little of JSON is checked here.
 */

/** The text of each member's value of a JSON object. Of a repeated name the last counts, as in JSON.parse. */
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
