import { scrub } from "../../internal/scrub.js";

const most = 200;

/**
 * Literals, numbers and comments; also quoted names, which are kept. If the text was cut inside one of them, it extends
 * to the end. A backslash escapes only after E.
 */
const tokens =
  /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|"(?:[^"]|"")*(?:"|$)|\b[eE]'(?:[^'\\]|\\[\s\S]|'')*(?:'|$)|'(?:[^']|'')*(?:'|$)|\$(\w*)\$[\s\S]*?(?:\$\1\$|$)|(?<![\w$])\d[\d.]*/g;

/** The start of a statement, on one line, without its literal values. */
export function statementText(text: string): string {
  const bare = text.replace(tokens, (token) => {
    if (token.startsWith('"')) return token;
    return token.startsWith("--") || token.startsWith("/*") ? " " : "?";
  });
  const line = [...scrub(bare.replace(/\s+/g, " ").trim())];
  return line.length > most ? `${line.slice(0, most).join("")}…` : line.join("");
}
