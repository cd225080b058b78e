// Runs what is too slow for every change, in this order:
//
// - the long tests;
// - the store's tests on each PostgreSQL of heavy/postgres-versions;
// - the packed library with each TypeScript of heavy/consumers;
// - the whole test suite and the demo on each Node.js of heavy/node-versions.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { delimiter, resolve } from "node:path";

const nodes = installed("heavy/node-versions", /^node\d/);
const servers = installed("heavy/postgres-versions", /^postgres\d/);

const failed = [];
console.log("\n── long tests");
const long = { env: { ...process.env, POSTBOX_TEST_LONG: "1" } };
if (!succeeds("npx", ["tsc", "-b"]) || !succeeds("npx", ["vitest", "run"], long)) failed.push("long tests");
for (const server of servers) {
  console.log(`\n── ${server.name}`);
  // Tests on this server only: the other server's address is unreachable on purpose.
  const env = {
    ...process.env,
    POSTBOX_TEST_EMBEDDED: server.path,
    POSTBOX_TEST_POSTGRES_URL: "postgres://127.0.0.1:1/none",
  };
  if (!succeeds("npx", ["vitest", "run", "packages/postbox/src/stores/postgres", "torture/forged-statistics"], { env }))
    failed.push(server.name);
}
console.log("\n── consumers");
if (!succeeds(process.execPath, ["scripts/check-consumers.mjs"])) failed.push("consumers");
for (const { name: version, path } of nodes) {
  const bin = resolve(path, "bin");
  const env = { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` };
  for (const script of ["test", "demo"]) {
    console.log(`\n── ${version}: ${script}`);
    if (!succeeds("npm", ["run", script], { env })) failed.push(`${version}: ${script}`);
  }
}
const also = [...servers, ...nodes].map(({ name }) => name).join(", ");
console.log(failed.length > 0 ? `\nfailed: ${failed.join(", ")}` : `\nall passed, also on ${also}`);
process.exitCode = failed.length > 0 ? 1 : 0;

/** The packages of a folder in heavy/ that support this platform. */
function installed(folder, names) {
  // The tests themselves do what the packages' install scripts would do.
  if (!succeeds("npm", ["ci", "--ignore-scripts"], { cwd: folder })) throw new Error(`cannot install ${folder}`);
  const found = readdirSync(`${folder}/node_modules`).filter((name) => names.test(name));
  if (found.length === 0) throw new Error(`${folder} has nothing for ${process.platform}-${process.arch}`);
  return found.map((name) => ({ name, path: resolve(folder, "node_modules", name) }));
}

function succeeds(command, args, options) {
  return spawnSync(command, args, { stdio: "inherit", timeout: 60 * 60_000, ...options }).status === 0;
}
