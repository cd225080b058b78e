// Packs every public package as `npm publish` would and checks the tarball: its files, its size, its entry points and
// types (publint, attw).
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { publint } from "publint";
import { formatMessage } from "publint/utils";

/** In kilobytes. When you raise a limit, state in the commit what grew and why. */
const limits = {
  postbox: { packed: 520, unpacked: 1780 },
  "@postbox/protobuf": { packed: 22, unpacked: 62 },
  "@postbox/testkit": { packed: 200, unpacked: 820 },
};

const folder = mkdtempSync(join(tmpdir(), "postbox-packed-"));
const problems = [];
try {
  for (const name of readdirSync("packages")) {
    const manifest = JSON.parse(readFileSync(join("packages", name, "package.json"), "utf8"));
    if (!manifest.private) await checkPacked(manifest, join("packages", name));
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
for (const problem of problems) console.error(`✗ ${problem}`);
process.exitCode = problems.length > 0 ? 1 : 0;

async function checkPacked({ name, dependencies = {} }, source) {
  const answer = run("npm", ["pack", `./${source}`, "--json", "--ignore-scripts", `--pack-destination=${folder}`]);
  const [packed] = Object.values(JSON.parse(answer));
  const tarball = join(folder, packed.filename);
  const kilobytes = { packed: Math.ceil(packed.size / 1000), unpacked: Math.ceil(packed.unpackedSize / 1000) };
  console.log(
    `${name}: ${packed.files.length} files, ${kilobytes.packed} kB packed, ${kilobytes.unpacked} kB unpacked`,
  );

  for (const [what, limit] of Object.entries(limits[name] ?? { limit: 0 })) {
    if (!(kilobytes[what] <= limit)) problems.push(`${name} is ${kilobytes[what]} kB ${what}; the limit is ${limit}`);
  }
  const paths = packed.files.map(({ path }) => path);
  const unwanted = paths.filter(
    (path) =>
      !/^dist\/.*(\.js|\.d\.ts)$|^bin\/.*\.js$|^proto\/.*\.proto$|^package\.json$|^README\.md$|^LICENSE$/.test(path),
  );
  if (unwanted.length > 0) problems.push(`${name} must not contain ${unwanted.join(", ")}`);
  const stale = paths.filter((path) => /^dist\/.*\.js$/.test(path) && !hasSource(join(source, path)));
  if (stale.length > 0)
    problems.push(`${source}/dist has files without a source (${stale.join(", ")}): delete it and build again`);
  const mapped = paths.filter((path) => readFileSync(join(source, path), "utf8").includes("sourceMappingURL="));
  if (mapped.length > 0)
    problems.push(`${name} references source maps that it does not contain (${mapped.join(", ")})`);
  if (!paths.includes("LICENSE")) problems.push(`${name} lacks its LICENSE`);
  if (name === "postbox" && Object.keys(dependencies).length > 0) problems.push("postbox must have no dependencies");

  const { messages, pkg } = await publint({ pack: { tarball: readFileSync(tarball).buffer }, strict: true });
  for (const message of messages) problems.push(`${name}: ${formatMessage(message, pkg)}`);
  try {
    run("npx", ["attw", tarball, "--profile", "esm-only", "--no-color"]);
  } catch (error) {
    problems.push(`${name}: attw reports problems\n${error.stdout}${error.stderr}`);
  }
}

/** The compiler keeps old output, so a renamed module would be published under both names. */
function hasSource(built) {
  const source = built.replace("/dist/", "/src/");
  return existsSync(source) || existsSync(source.replace(/\.js$/, ".ts"));
}

function run(command, args) {
  return execFileSync(command, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], timeout: 2 * 60_000 });
}
