/** What is wrong with the value of a message, and where it is. */
export interface Issue {
  readonly path: Path;
  readonly message: string;
}

export type Path = readonly (string | number)[];
export type Tell = (path: Path, message: string) => void;

/** How deep messages may be inside of messages, the outermost among them: readers go no further. */
const maxDepth = 100;

/**
 * Where messages are deeper than readers go, or inside of themselves. Ends the search: what contains itself twice never
 * ends.
 */
class TooDeep extends Error {
  constructor(readonly path: Path) {
    super(`is more than ${maxDepth} messages deep, or inside of itself`);
  }
}

/** Throws, to the end of `gatherIssues`, where readers would give up. */
export function checkDepth(path: Path, depth: number): void {
  if (depth > maxDepth) throw new TooDeep(path);
}

/** All that `search` tells. */
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
