/*
 * Reads imports and exports out of the text of a module. TypeScript 7 has no API for that, and our modules are plain:
 * statements at the start of a line, formatted by one tool.
 */

/** One `import … from`, `export … from`, `import "…"` or `import("…")`. */
export interface Import {
  readonly specifier: string;
  /** `export * from`. */
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
 * The names that a module exports, sorted, types marked as such. `export * from` is followed with `load`, which
 * returns the names of the module that a specifier stands for.
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
  const declaration =
    /^export\s+(?:declare\s+|abstract\s+|async\s+)*(?<kind>const|let|function\*?|class|enum|interface|type)\s+(?<name>\w+)/gm;
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
