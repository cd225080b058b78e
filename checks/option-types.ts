import { pageText } from "./snippets.js";

/** An option, as its type declares it. */
export interface DeclaredOption {
  readonly isRequired: boolean;
  /** What its comment says after "Defaults to"; undefined if it says nothing. */
  readonly default: string | undefined;
}

/**
 * The members of an interface, or of the objects of a type, by name. TypeScript 7 has no API to ask; our sources are
 * laid out by one formatter, so the least indented members of a declaration are its own.
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
    // One of several objects of a type may leave out what another requires.
    const before = found.get(name);
    found.set(name, {
      isRequired: mark === "" && before?.isRequired !== false,
      default: said ?? before?.default,
    });
  }
  return found;
}

/** Whether a cell names the default that a comment gives: the same code, numbers and quoted words, in any sentence. */
export function isSameDefault(cell: string, comment: string): boolean {
  const [listed, declared] = [literals(cell), literals(comment)];
  const first = literals(/^(?:`[^`]*`|[^`;])*/.exec(comment)?.[0] ?? "");
  return listed.every((each) => declared.includes(each)) && first.every((each) => listed.includes(each));
}

function literals(text: string): string[] {
  const words = text.replaceAll(/ \([^)]*\)/g, "").matchAll(/`[^`]+`|"[^"]*"|\b(?:true|false)\b|\d[\d,.]*\d|\d/g);
  return [...words].map(([word]) => word.replaceAll(/[`"]/g, ""));
}
