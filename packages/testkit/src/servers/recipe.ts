import type { Command, GuardedFolder } from "./guarded-folder.js";

/** How a kind of server runs in a folder of its own. */
export interface Recipe {
  /** Where its folder is created. Defaults to the system's folder for temporary files. */
  readonly parent?: string;
  /** Does everything before the first start. Called once. */
  prepare(folder: GuardedFolder): Promise<PreparedServer>;
}

/** A server that can be started repeatedly on the same data. */
interface PreparedServer {
  command(port: number): Command;
  url(port: number): string;
  /** Resolves once the server at `url` accepts connections; rejects while it does not. */
  probe(url: string): Promise<unknown>;
  /** Its administration program with these arguments, if it has one. */
  control?(args: readonly string[]): Command;
  /** Cleans up what a killed server has left outside of its folder. */
  tidyAfterKill?(): Promise<void>;
}
