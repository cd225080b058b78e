/*
 * `npm run services`: finds or starts what the integration tests need, one after the other, and prints the results.
 * Fails only if a service that POSTBOX_TEST_REQUIRE names is missing in the end.
 */
import { catalogue, requiredServices } from "./catalogue.js";
import { shownAddress } from "./service.js";
import { type Attempt, startService } from "./start-service.js";
import { table } from "./table.js";

const required = requiredServices(process.env);
const attempts: Attempt[] = [];
for (const service of catalogue) attempts.push(await startService(service, process.env, console.log));

const rows = attempts.map(({ finding, how }) => [
  finding.service.title,
  "version" in finding ? finding.version : "missing",
  shownAddress(finding.url),
  how,
]);
console.log(table(["service", "version", "address", "how"], rows));

const missing = attempts.flatMap(({ finding }) =>
  "missing" in finding && required.includes(finding.service) ? finding.service.title : [],
);
if (missing.length > 0) {
  console.error(`\nPOSTBOX_TEST_REQUIRE asks for what is missing: ${missing.join(", ")}`);
  process.exitCode = 1;
}
