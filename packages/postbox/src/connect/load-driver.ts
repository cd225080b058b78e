import { ConfigError } from "../errors.js";

/** Imports an optional peer, and says which one to install where it is missing. */
export async function loadDriver<M>(name: string, load: () => Promise<M>): Promise<M> {
  try {
    return await load();
  } catch (cause) {
    throw new ConfigError("driver-missing", `cannot load '${name}'; install it beside postbox: npm install ${name}`, {
      cause,
    });
  }
}
