// Gives every optional platform package an entry in package-lock.json. Run it after `npm install`.
//
// npm leaves out the platform packages that its registry did not offer at that moment. `npm ci` then rejects the whole
// lock file ("Missing: … from lock file"). An entry with the version and the platform satisfies both.
import { readFileSync, writeFileSync } from "node:fs";

const systems = ["aix", "android", "darwin", "freebsd", "linux", "netbsd", "openbsd", "openharmony", "sunos", "win32"];
const processors = ["arm", "arm64", "ia32", "loong64", "mips64el", "ppc64", "riscv64", "s390x", "wasm32", "x64"];

const path = process.argv[2] ?? "package-lock.json";
const lock = JSON.parse(readFileSync(path, "utf8"));
const { packages } = lock;

for (const owner of Object.values(packages)) {
  for (const [name, version] of Object.entries(owner.optionalDependencies ?? {})) {
    if (Object.keys(packages).some((at) => at.endsWith(`node_modules/${name}`))) continue;
    const words = name.split(/[/-]/);
    const cpu = words.filter((word) => processors.includes(word));
    const os = words.filter((word) => systems.includes(word));
    const libc = words.includes("musl") ? ["musl"] : words.includes("gnu") ? ["glibc"] : [];
    if (!/^\d+\.\d+\.\d+\S*$/.test(version) || cpu.length === 0) {
      throw new Error(`${name}@${version}: cannot tell its version or platform; add it to ${path} by hand`);
    }
    // In npm's own order, so that its next run changes nothing.
    packages[`node_modules/${name}`] = {
      version,
      cpu,
      ...(owner.dev && { dev: true }),
      ...(libc.length > 0 && { libc }),
      optional: true,
      ...(os.length > 0 && { os }),
    };
    console.log(`added ${name}@${version}`);
  }
}

lock.packages = Object.fromEntries(Object.entries(packages).sort(([a], [b]) => a.localeCompare(b, "en")));
writeFileSync(path, `${JSON.stringify(lock, null, 2)}\n`);
