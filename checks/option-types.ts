import { pageText } from "./snippets.js";

/** An option as its type declares it. */
export interface DeclaredOption {
  readonly isRequired: boolean;
  /** The text after "Defaults to" in its comment; undefined if there is none. */
  readonly default: string | undefined;
}

/**
 * Returns the members of an interface, or of a union of object types, by name. TypeScript 7 has no API for that. It
 * relies on the formatter: the least indented members of a declaration are its own.
 */
export function declared(file: string, type: string): Map<string, DeclaredOption> {
  const start = new RegExp(`^(?:export )?(?:interface|type) ${type}\\b`, "m");
  const source = pageText(`packages/${file}`);
  const from = source.search(start);
  if (from === -1) throw new Error(`${file} declares no ${type}`);
  const end = source.slice(from).search(/\n(?:}|.*;)\n(?:\n|$)/);
  const text = source.slice(from, end === -1 ? undefined : from + end + 1);
  const member = /^( +)(?:readonly )?(\w+)(\??)(?:<[^\n]*>)?[:(](?! never;)/gm;
  const members = [...text.matchAll(member)];
  const indent = Math.min(...members.map(([, spaces = ""]) => spaces.length));
  const found = new Map<string, DeclaredOption>();
  for (const { index, 1: spaces = "", 2: name = "", 3: mark } of members) {
    if (spaces.length !== indent) continue;
    const comment = /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*$/.exec(text.slice(0, index))?.[1] ?? "";
    const said = /Defaults to ((?:`[^`]*`|[^`])+?)[.:](?= |$)/.exec(comment.replace(/\s+\*?\s*/g, " "))?.[1];
    // One object type of a union may omit what another one requires.
    const before = found.get(name);
    found.set(name, {
      isRequired: mark === "" && before?.isRequired !== false,
      default: said ?? before?.default,
    });
  }
  return found;
}

/**
 * Whether a cell and a comment state the same default. Compares code, numbers and quoted words; the wording may differ.
 */
export function isSameDefault(cell: string, comment: string): boolean {
  const [listed, declared] = [literals(cell), literals(comment)];
  const first = literals(/^(?:`[^`]*`|[^`;])*/.exec(comment)?.[0] ?? "");
  return listed.every((each) => declared.includes(each)) && first.every((each) => listed.includes(each));
}

function literals(text: string): string[] {
  const words = text.replaceAll(/ \([^)]*\)/g, "").matchAll(/`[^`]+`|"[^"]*"|\b(?:true|false)\b|\d[\d,.]*\d|\d/g);
  return [...words].map(([word]) => word.replaceAll(/[`"]/g, ""));
}
