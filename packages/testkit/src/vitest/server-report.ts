import type { SerializedError } from "vitest";
import type { Reporter, TestModule, Vitest } from "vitest/node";
import { shownAddress } from "../servers/service.js";
import { table } from "../servers/table.js";
import type { ServersOfThisRun, TestServer } from "./test-server.js";

const mostInHaste = 100;
const wholeTakes =
  "This takes about 15 minutes on two cores, the last five of them one file at a time. `npm run test:quick` needs " +
  "no server and takes one minute.";

/**
 * Prints at the start of a run how long it will take, and later its progress. At the end, it prints which servers the
 * tests ran against, which were not found, `failed: …` for each failure, and, on a line of its own, `N passed, N
 * failed, N skipped`.
 */
export default class ServerReport implements Reporter {
  #vitest: Vitest | undefined;
  #files = 0;
  #ended = 0;

  onInit(vitest: Vitest): void {
    this.#vitest = vitest;
  }

  onTestRunStart(specifications: readonly unknown[]): void {
    this.#files = specifications.length;
    this.#ended = 0;
    const { servers } = this.#vitest?.getRootProject().getProvidedContext() ?? {};
    const where = servers?.found.map(({ title, version }) => `${title} ${version}`).join(", ") || "no servers";
    console.log(`${this.#files} files of tests, on ${where}`);
    // Only for the whole suite: the duration of a part of it is unknown.
    if (this.#files > mostInHaste) console.log(`${wholeTakes}\n`);
  }

  onTestModuleEnd(): void {
    this.#ended += 1;
    if (this.#ended % 10 === 0) console.log(`${this.#ended} of ${this.#files} files`);
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): void {
    const { servers } = this.#vitest?.getRootProject().getProvidedContext() ?? {};
    const { passed, failed, skipped } = results(modules, unhandledErrors);
    console.log(`\non Node.js ${process.versions.node}`);
    if (servers) console.log(describeServers(servers, modules));
    console.log(`\n${failed.map((what) => `failed: ${what}\n`).join("")}`);
    console.log(`${passed} passed, ${failed.length} failed, ${skipped} skipped`);
  }
}

/**
 * The runner's own results. Failures outside of any test also count, as one each: a file that does not load, a hook, an
 * unhandled error. Otherwise a run could fail with "0 failed".
 */
function results(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]) {
  const failed = unhandledErrors.map((error) => `outside of any test: ${firstLine([error])}`);
  let passed = 0;
  let skipped = 0;
  for (const module of modules) {
    for (const test of module.children.allTests()) {
      const { state, errors } = test.result();
      if (state === "passed") passed += 1;
      else if (state === "skipped") skipped += 1;
      else failed.push(`${module.relativeModuleId} > ${test.fullName}: ${firstLine(errors)}`);
    }
    for (const suite of [module, ...module.children.allSuites()]) {
      const errors = suite.errors();
      if (errors.length === 0) continue;
      const name = suite.type === "suite" ? ` > ${suite.fullName}` : "";
      failed.push(`${module.relativeModuleId}${name}: ${firstLine(errors)}`);
    }
  }
  return { passed, failed, skipped };
}

function firstLine(errors: readonly SerializedError[] = []): string {
  return errors[0]?.message.split("\n", 1)[0] ?? "did not end";
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
