/**
 * A server that ordinary integration tests share: it is looked for, or started once for all of them, and never broken.
 * Tests that break a server start their own with `disposable`.
 */
export interface Service {
  /** Also its name in `compose.yaml` and in `POSTBOX_TEST_REQUIRE`. */
  readonly name: string;
  /** As people write it. */
  readonly title: string;
  /** Where it is looked for when `variable` is not set. */
  readonly defaultUrl: string;
  /** The environment variable that names another address. An address given so is never started, only looked for. */
  readonly variable: string;
  /** Resolves with the version of the server that answers at `url`; rejects when none does, within a few seconds. */
  probe(url: string): Promise<string>;
  /** How Debian runs it. */
  readonly debian: DebianPackage;
}

export interface DebianPackage {
  readonly package: string;
  /** Files to write before the installation, by path, so that even its first start binds to loopback only. */
  readonly configuration: Readonly<Record<string, string>>;
  /** A shell command. Harmless when the server runs already. */
  readonly start: string;
  /** A shell command for after the first start, and only if it was we who installed the package. */
  readonly afterInstallation?: string;
}

/** Where `service` is expected. */
export function addressOf(service: Service, environment: NodeJS.ProcessEnv): string {
  return environment[service.variable] || service.defaultUrl;
}

/** `url` as it may be shown: without its password. */
export function shownAddress(url: string): string {
  const shown = new URL(url);
  shown.password = "";
  return shown.href;
}
