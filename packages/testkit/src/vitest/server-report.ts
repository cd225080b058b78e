import type { Reporter, TestModule, TestSuite, Vitest } from "vitest/node";
import { shownAddress } from "../servers/service.js";
import { table } from "../servers/table.js";
import type { ServersOfThisRun, TestServer } from "./test-server.js";

/**
 * The last words of a run: which servers its tests ran against, which were not found, and, alone on a line,
 * `N passed, N failed, N skipped`.
 */
export default class ServerReport implements Reporter {
  #vitest: Vitest | undefined;

  onInit(vitest: Vitest): void {
    this.#vitest = vitest;
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const { servers } = this.#vitest?.getRootProject().getProvidedContext() ?? {};
    const { passed, failed, skipped } = count(modules, unhandledErrors.length);
    console.log(`\non Node.js ${process.versions.node}`);
    if (servers) console.log(describeServers(servers, modules));
    console.log(`\n${passed} passed, ${failed} failed, ${skipped} skipped`);
  }
}

/**
 * The runner's own results. What fails outside of any test counts too, as one failure each: a file that does not load,
 * a hook, an error that nobody caught. Else a run could fail with "0 failed".
 */
function count(modules: readonly TestModule[], unhandledErrors: number) {
  const counts = { passed: 0, failed: unhandledErrors, skipped: 0 };
  const states = { passed: "passed", failed: "failed", skipped: "skipped", pending: "failed" } as const;
  for (const module of modules) {
    for (const test of module.children.allTests()) counts[states[test.result().state]] += 1;
    for (const suite of [module, ...module.children.allSuites()] as (TestModule | TestSuite)[]) {
      if (suite.errors().length > 0) counts.failed += 1;
    }
  }
  return counts;
}

function describeServers(servers: ServersOfThisRun, modules: readonly TestModule[]): string {
  const used = new Map<string, { server: TestServer; tests: number; files: Set<string> }>();
  for (const server of servers.found) used.set(server.title, { server, tests: 0, files: new Set() });
  for (const module of modules) {
    for (const test of module.children.allTests()) {
      const { server } = test.meta();
      if (!server || test.result().state === "skipped") continue;
      const entry = used.get(server.title) ?? { server, tests: 0, files: new Set() };
      entry.tests += 1;
      entry.files.add(module.moduleId);
      used.set(server.title, entry);
    }
  }
  const rows = [...used.values()].map(({ server, tests, files }) => [
    server.title,
    server.version ?? "",
    server.url ? shownAddress(server.url) : "in process",
    `${tests}`,
    `${files.size}`,
  ]);
  return [
    table(["ran against", "version", "address", "tests", "files"], rows),
    ...servers.missing.map(({ title, reason }) => `not found: ${title} (${reason})`),
  ].join("\n");
}
