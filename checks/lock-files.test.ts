import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

interface Locked {
  readonly resolved?: string;
  readonly link?: boolean;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

const root = join(import.meta.dirname, "..");
const heavy = readdirSync(join(root, "heavy")).map((name) => join("heavy", name));

for (const folder of ["", ...heavy]) {
  const file = join(folder, "package-lock.json");
  const packages: Record<string, Locked> = JSON.parse(readFileSync(join(root, file), "utf8")).packages;

  // Contributors use different registries. The hashes guarantee the same content.
  test(`${file} names no download addresses`, () => {
    const addresses = Object.values(packages).flatMap(({ link, resolved }) => (link ? [] : (resolved ?? [])));
    expect(addresses).toEqual([]);
  });

  // Otherwise `npm ci` fails with some registries. To fix: node scripts/complete-lock.mjs
  test(`${file} has every optional package`, () => {
    const names = Object.values(packages).flatMap((locked) => Object.keys(locked.optionalDependencies ?? {}));
    const missing = names.filter((name) => !Object.keys(packages).some((at) => at.endsWith(`node_modules/${name}`)));
    expect(missing).toEqual([]);
  });
}
