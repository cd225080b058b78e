import type { TestProject } from "vitest/node";
import { type DisposableServer, disposable } from "../servers/disposable.js";
import { findServices } from "../servers/find-services.js";
import { shownAddress } from "../servers/service.js";
import { postgresVersion } from "../servers/services/postgres.js";
import { rabbitmqVersion } from "../servers/services/rabbitmq.js";
import type { FoundServer, MissingServer } from "./test-server.js";

/**
 * Runs before the first test. It finds out which services answer, and tells the tests. It starts one embedded
 * PostgreSQL for all of them, unless `POSTBOX_TEST_EMBEDDED` is `off` (it may also be the folder of another version).
 * It starts one RabbitMQ if `POSTBOX_TEST_RABBITMQ_ROOT` names the root of a system that has one. A missing service
 * does not fail the setup: `required-servers.test.ts` decides about it, so that it counts as a failed test.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const found: FoundServer[] = [];
  const missing: MissingServer[] = [];
  const own: DisposableServer[] = [];

  if (process.env.POSTBOX_TEST_EMBEDDED !== "off") {
    const title = "PostgreSQL (embedded)";
    try {
      const embedded = await disposable("postgres");
      own.push(embedded);
      found.push({ service: "postgres", title, version: await postgresVersion(embedded.url), url: embedded.url });
    } catch (error) {
      missing.push({ service: "embedded", title, reason: `${error}` });
    }
  }
  const rooted = process.env.POSTBOX_TEST_RABBITMQ_ROOT !== undefined;
  if (rooted) {
    const server = await disposable("rabbitmq");
    own.push(server);
    const version = await rabbitmqVersion(server.url);
    found.push({ service: "rabbitmq", title: "RabbitMQ (in another root)", version, url: server.url });
  }
  for (const finding of await findServices()) {
    const { service, url } = finding;
    if (rooted && service.name === "rabbitmq") continue;
    if ("version" in finding) {
      found.push({ service: service.name, title: `${service.title} (found)`, version: finding.version, url });
    } else {
      const reason = `${shownAddress(url)}: ${finding.missing}; "npm run services", or set ${service.variable}`;
      missing.push({ service: service.name, title: service.title, reason });
    }
  }
  project.provide("servers", { found, missing });
  return async () => {
    for (const server of own) await server.stop();
  };
}
