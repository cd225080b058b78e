import type { Command, GuardedFolder } from "./guarded-folder.js";

/** How a kind of server runs in a folder of its own. */
export interface Recipe {
  /** Where its folder is made. Defaults to the system's folder for temporary files. */
  readonly parent?: string;
  /** Everything before the first start. Called once. */
  prepare(folder: GuardedFolder): Promise<PreparedServer>;
}

/** A server that can be started again and again on the same data. */
interface PreparedServer {
  command(port: number): Command;
  url(port: number): string;
  /** Resolves once the server at `url` takes connections; rejects while it does not. */
  probe(url: string): Promise<unknown>;
  /** Its administration program, with these arguments, where it has one. */
  control?(args: readonly string[]): Command;
  /** Takes back what a killed server has left outside its folder. */
  tidyAfterKill?(): Promise<void>;
}
