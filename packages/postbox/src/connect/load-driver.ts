import { ConfigError } from "../errors.js";

/** Imports an optional peer dependency, or throws an error that says which one to install. */
export async function loadDriver<M>(name: string, load: () => Promise<M>): Promise<M> {
  try {
    return await load();
  } catch (cause) {
    throw new ConfigError("driver-missing", `cannot load '${name}'; install it beside postbox: npm install ${name}`, {
      cause,
    });
  }
}
