/** What is wrong with a value, and where. */
export interface Issue {
  readonly path: Path;
  readonly message: string;
}

export type Path = readonly (string | number)[];
export type Tell = (path: Path, message: string) => void;

/** How deep messages may be nested, counting the outermost. Readers stop there. */
const maxDepth = 100;

/**
 * Thrown if messages are nested deeper than readers go, or contain themselves. It ends the search, which would
 * otherwise never end.
 */
class TooDeep extends Error {
  constructor(readonly path: Path) {
    super(`is more than ${maxDepth} messages deep, or inside of itself`);
  }
}

/** Throws, up to `gatherIssues`, at the depth at which readers stop. */
export function checkDepth(path: Path, depth: number): void {
  if (depth > maxDepth) throw new TooDeep(path);
}

/** Returns every issue that `search` reports. */
export function gatherIssues(search: (tell: Tell) => void): Issue[] {
  const issues: Issue[] = [];
  try {
    search((path, message) => issues.push({ path, message }));
  } catch (error) {
    if (!(error instanceof TooDeep)) throw error;
    issues.push({ path: error.path, message: error.message });
  }
  return issues;
}
