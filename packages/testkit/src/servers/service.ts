/**
 * A server that ordinary integration tests share: found, or started once for all of them, and never broken. Tests that
 * break a server start their own with `disposable`.
 */
export interface Service {
  /** Also its name in `compose.yaml` and in `POSTBOX_TEST_REQUIRE`. */
  readonly name: string;
  /** The name in texts. */
  readonly title: string;
  /** Where to look for it if `variable` is not set. */
  readonly defaultUrl: string;
  /**
   * The environment variable that names another address. A service at such an address is never started, only looked
   * for.
   */
  readonly variable: string;
  /** Resolves with the version of the server that answers at `url`; rejects within a few seconds if none does. */
  probe(url: string): Promise<string>;
  /** How Debian runs it, if Debian has it. */
  readonly debian?: DebianPackage;
  /** How to start it without a package of Debian. */
  readonly own?: OwnStart;
}

/** Another way to start a server. */
interface OwnStart {
  /** What it uses, for display. */
  readonly how: string;
  /** Starts it as a daemon, which outlives this process. It need not be ready yet. */
  start(): Promise<void>;
}

/** A package of Debian that contains a server. */
export interface DebianPackage {
  readonly package: string;
  /** Files to write before the installation, by path, so that even its first start binds to loopback only. */
  readonly configuration: Readonly<Record<string, string>>;
  /** A shell command. Has no effect if the server is already running. */
  readonly start: string;
  /** A shell command to run after the first start, and only if this process has installed the package. */
  readonly afterInstallation?: string;
}

/** The address at which `service` is expected. */
export function addressOf(service: Service, environment: NodeJS.ProcessEnv): string {
  return environment[service.variable] || service.defaultUrl;
}

/** `url` for display: without its password. */
export function shownAddress(url: string): string {
  const shown = new URL(url);
  shown.password = "";
  return shown.href;
}
