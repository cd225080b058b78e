import { scrub } from "../../internal/scrub.js";

const most = 200;

/**
 * What stands in quotes, numbers, comments; and names in double quotes, to be passed over. Where the text was cut off inside of
 * one, it goes to the end. A backslash escapes only behind E.
 */
const tokens =
  /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|"(?:[^"]|"")*(?:"|$)|\b[eE]'(?:[^'\\]|\\[\s\S]|'')*(?:'|$)|'(?:[^']|'')*(?:'|$)|\$(\w*)\$[\s\S]*?(?:\$\1\$|$)|(?<![\w$])\d[\d.]*/g;

/** The beginning of somebody's statement, in one line, without the values in it. */
export function statementText(text: string): string {
  const bare = text.replace(tokens, (token) => {
    if (token.startsWith('"')) return token;
    return token.startsWith("--") || token.startsWith("/*") ? " " : "?";
  });
  const line = [...scrub(bare.replace(/\s+/g, " ").trim())];
  return line.length > most ? `${line.slice(0, most).join("")}…` : line.join("");
}
