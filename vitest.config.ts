import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vitest/config";

/**
 * Tests import the packages by name and get their sources, so that they need no build. The names come from the
 * `exports` of each package: `dist/x/index.js` there is `src/x/index.ts` here.
 */
const sources = readdirSync("packages").flatMap((folder) => {
  const { name, exports } = JSON.parse(readFileSync(join("packages", folder, "package.json"), "utf8"));
  return Object.entries<{ default: string }>(exports ?? {}).map(([path, target]) => ({
    find: new RegExp(`^${name}${path.slice(1)}$`),
    replacement: join(
      import.meta.dirname,
      "packages",
      folder,
      target.default.replace("./dist/", "src/").replace(/\.js$/, ".ts"),
    ),
  }));
});

const shared = {
  resolve: { alias: sources },
  test: {
    // What is waited for takes milliseconds. These bounds are for a machine that has stood still for a while.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: { poll: { interval: 20, timeout: 30_000 } },
    exclude: ["**/node_modules/**", "**/dist/**"],
  },
};

/** The long or the quick project where it is asked for, and nowhere else. */
function chosen<P extends { readonly test: { readonly name: string } }>(mode: string, projects: readonly P[]): P[] {
  const asked = process.env.POSTBOX_TEST_LONG !== undefined ? "long" : mode;
  const alone = projects.filter(({ test }) => test.name === asked);
  return alone.length > 0 ? alone : projects.filter(({ test }) => test.name !== "long" && test.name !== "quick");
}

export default defineConfig(({ mode }) => ({
  ...shared,
  test: {
    globalSetup: `./packages/testkit/src/vitest/${mode === "quick" ? "no-servers" : "global-setup"}.ts`,
    // What the library writes where a test does not listen to it: servers are broken on purpose here.
    onConsoleLog: (text) => !text.startsWith("postbox: "),
    reporters: [["default", { summary: false }], "./packages/testkit/src/vitest/server-report.ts"],
    projects: chosen(mode, [
      {
        ...shared,
        test: {
          ...shared.test,
          name: "parallel",
          include: [
            "{packages,checks,examples,bench,torture,simulation}/**/*.test.ts",
            "heavy/{prisma,typeorm,mikro-orm}/*.test.ts",
          ],
          exclude: [...shared.test.exclude, "**/*.{serial,long}.test.ts"],
          maxWorkers: 2,
        },
      },
      {
        // Tests that break servers: one file at a time, and after all others.
        ...shared,
        test: {
          ...shared.test,
          name: "serial",
          include: ["{packages,checks,examples,torture}/**/*.serial.test.ts"],
          maxWorkers: 1,
          sequence: { groupOrder: 1 },
        },
      },
      {
        // Without any server, within a minute: `npm run test:quick`.
        ...shared,
        test: {
          ...shared.test,
          name: "quick",
          include: ["{packages,bench}/**/*.test.ts", "checks/{import-direction,exported-names,lock-files}.test.ts"],
          exclude: [
            ...shared.test.exclude,
            "**/*.{serial,long}.test.ts",
            "**/{postgres,rabbitmq,kafka,transactions,connect,servers,vitest,generator}/**",
          ],
          maxWorkers: 2,
        },
      },
      {
        // For minutes, and alone: `npm run test:long`.
        ...shared,
        test: {
          ...shared.test,
          name: "long",
          include: ["{torture,simulation}/**/*.long.test.ts"],
          maxWorkers: 1,
          testTimeout: 10 * 60_000,
          hookTimeout: 10 * 60_000,
        },
      },
    ]),
  },
}));
