import { ConfigError } from "../errors.js";

/** Names the scheme only: the rest of a URL may hold a password. */
export function unsupportedUrl(what: string, url: string, known: string): ConfigError {
  const scheme = /^[A-Za-z][A-Za-z0-9+.-]*:/.exec(url)?.[0] ?? "no scheme";
  return new ConfigError("url-unsupported", `no ${what} is known for URLs with ${scheme}; known are ${known}`);
}
