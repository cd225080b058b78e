import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { createJiti } from "jiti";
import { wrongUse } from "./failure.js";

/** Loads a module of the user, in TypeScript or JavaScript, without a build step. `what` names it in errors. */
export async function loadModule(cwd: string, file: string, what: string): Promise<Readonly<Record<string, unknown>>> {
  const path = resolve(cwd, file);
  if (!existsSync(path)) throw wrongUse(`there is no ${what} ${file}; give the path of a file`);
  try {
    return await createJiti(pathToFileURL(`${cwd}/`).href).import(path);
  } catch (error) {
    throw wrongUse(`cannot load ${file}: ${(error as Error).message}`);
  }
}
