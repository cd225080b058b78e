import { ConfigError } from "../errors.js";

/** Names the scheme only, since the rest of a URL may contain a password. */
export function unsupportedUrl(what: string, url: unknown, known: string): ConfigError {
  if (typeof url !== "string") {
    return new ConfigError(
      "url-unsupported",
      `the URL of a ${what} must be a string; got ${typeof url}. Supported are ${known}`,
    );
  }
  const scheme = /^[A-Za-z][A-Za-z0-9+.-]*:/.exec(url)?.[0] ?? "no scheme";
  return new ConfigError("url-unsupported", `no ${what} for URLs with ${scheme}; supported are ${known}`);
}
