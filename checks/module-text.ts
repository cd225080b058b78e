/*
 * Reads imports and exports from the text of a module, because TypeScript 7 has no API for that. It relies on the
 * formatter: statements begin at the start of a line.
 */

/** One `import … from`, `export … from`, `import "…"` or `import("…")`. */
export interface Import {
  readonly specifier: string;
  /** Whether it is `export * from`. */
  readonly reexportsAll: boolean;
}

export function importsOf(source: string): Import[] {
  const code = withoutComments(source);
  const statements = code.matchAll(/^(?:import|export)\b(?<what>[^;"]*?)\bfrom\s+"(?<specifier>[^"]+)"/gm);
  const bare = code.matchAll(/(?:^import\s+|\bimport\(\s*)"(?<specifier>[^"]+)"/gm);
  return [...statements, ...bare].map(({ groups }) => ({
    specifier: groups?.specifier ?? "",
    reexportsAll: groups?.what?.trim() === "*",
  }));
}

/**
 * Returns the sorted names that a module exports; types are marked. For `export * from`, it calls `load` with the
 * specifier to get the names of that module.
 */
export function exportedNames(source: string, load: (specifier: string) => readonly string[]): string[] {
  const code = withoutComments(source);
  const names: string[] = [];
  for (const { groups } of code.matchAll(/^export\s+(?<type>type\s+)?\{(?<list>[^}]*)\}/gm)) {
    for (const item of groups?.list?.split(",") ?? []) {
      const [, type, name] = /^(type\s+)?(?:\S+\s+as\s+)?(\S+)$/.exec(item.trim()) ?? [];
      if (name) names.push(groups?.type || type ? `type ${name}` : name);
    }
  }
  const declaration = new RegExp(
    String.raw`^export\s+(?:(?:declare|abstract|async)\s+)*` +
      String.raw`(?<kind>const|let|function\*?|class|enum|interface|type)\s+(?<name>\w+)`,
    "gm",
  );
  for (const { groups } of code.matchAll(declaration)) {
    const isType = groups?.kind === "interface" || groups?.kind === "type";
    names.push(isType ? `type ${groups?.name}` : `${groups?.name}`);
  }
  if (/^export\s+default\b/m.test(code)) names.push("default");
  for (const { specifier, reexportsAll } of importsOf(source)) if (reexportsAll) names.push(...load(specifier));
  return [...new Set(names)].sort();
}

/** Strings are matched first, so that "https://…" does not start a comment. */
function withoutComments(source: string): string {
  return source.replace(
    /("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g,
    (_, text?: string) => text ?? "",
  );
}
