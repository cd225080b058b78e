/** A server that tests run against, as the final report of a run names it. It may also be a library: PGlite. */
export interface TestServer {
  readonly title: string;
  readonly version?: string;
  /** How tests connect to it. Absent if it runs in the test's own process. */
  readonly url?: string;
}

/** What the global setup knows about the servers of this run. */
export interface ServersOfThisRun {
  readonly found: readonly FoundServer[];
  readonly missing: readonly MissingServer[];
}

export interface FoundServer extends TestServer {
  /** The name of its service in the catalogue. */
  readonly service: string;
  readonly url: string;
}

export interface MissingServer {
  readonly service: string;
  readonly title: string;
  /** Why, and what to do about it. */
  readonly reason: string;
}

declare module "vitest" {
  interface ProvidedContext {
    servers: ServersOfThisRun;
  }
  interface TaskMeta {
    server?: TestServer;
  }
}
