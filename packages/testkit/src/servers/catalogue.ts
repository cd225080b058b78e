import type { Service } from "./service.js";
import { kafka } from "./services/kafka.js";
import { mariadb } from "./services/mariadb.js";
import { pgbouncer } from "./services/pgbouncer.js";
import { postgres } from "./services/postgres.js";
import { rabbitmq } from "./services/rabbitmq.js";

/** Every service that tests may use, in the order in which tables list them. */
export const catalogue: readonly Service[] = [postgres, pgbouncer, mariadb, rabbitmq, kafka];

/**
 * The services without which a run fails: `POSTBOX_TEST_REQUIRE` is `all` or a list of names, separated by commas.
 * Empty if it is not set. Throws for a name that the catalogue does not have.
 */
export function requiredServices(environment: NodeJS.ProcessEnv): readonly Service[] {
  const value = environment.POSTBOX_TEST_REQUIRE?.trim() ?? "";
  if (value === "all") return catalogue;
  const names = value.split(",").flatMap((name) => name.trim() || []);
  return names.map((name) => {
    const service = catalogue.find((candidate) => candidate.name === name);
    if (service) return service;
    const known = catalogue.map((candidate) => candidate.name).join(", ");
    throw new Error(`POSTBOX_TEST_REQUIRE names "${name}": there is no such service; write "all" or some of ${known}`);
  });
}
