import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { freePort } from "./free-port.js";
import type { Service } from "./service.js";
import { startService } from "./start-service.js";

let folder: string;
let running: string;
let service: Service;

// A service that runs as soon as a file exists, and a Docker whose `compose up` creates that file and records how it
// was called. The real one is `npm run services`.
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "postbox-start-"));
  running = join(folder, "running");
  const docker = join(folder, "docker");
  writeFileSync(docker, `#!/bin/sh\necho "$@" >> "${folder}/calls"\n[ "$2" = up ] && touch "${running}"\nexit 0\n`);
  chmodSync(docker, 0o755);
  vi.stubEnv("PATH", `${folder}${delimiter}${process.env.PATH}`);
  service = {
    name: "sample",
    title: "Sample",
    defaultUrl: `sample://127.0.0.1:${await freePort()}`,
    variable: "POSTBOX_TEST_SAMPLE_URL",
    probe: async () => {
      if (!existsSync(running)) throw new Error("nobody there");
      return "1.2";
    },
    debian: { package: "none-such", configuration: {}, start: "false" },
  };
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

const calls = () => (existsSync(join(folder, "calls")) ? readFileSync(join(folder, "calls"), "utf8") : "");

test("uses what answers already", async () => {
  writeFileSync(running, "");
  const { finding, how } = await startService(service, {}, () => {});
  expect(finding).toMatchObject({ version: "1.2" });
  expect(how).toBe("already running");
  expect(calls()).toBe("");
});

test("starts it with Docker, once", async () => {
  const said: string[] = [];
  const first = await startService(service, {}, (line) => said.push(line));
  expect(first).toMatchObject({ finding: { version: "1.2" }, how: "docker compose" });
  expect(said).toEqual(["Sample: docker compose…"]);
  expect(calls()).toContain("compose up --detach --wait sample\n");
  expect((await startService(service, {}, () => {})).how).toBe("already running");
});

test("starts nothing at an address that somebody has chosen", async () => {
  const { finding, how } = await startService(service, { POSTBOX_TEST_SAMPLE_URL: service.defaultUrl }, () => {});
  expect(finding).toHaveProperty("missing");
  expect(how).toBe("no answer at POSTBOX_TEST_SAMPLE_URL: nobody there");
  expect(calls()).toBe("");
});

test("leaves a port alone where something else listens", async () => {
  const other = createServer().listen(Number(new URL(service.defaultUrl).port), "127.0.0.1");
  onTestFinished(() => {
    other.close();
  });
  const { how } = await startService(service, {}, () => {});
  expect(how).toBe("its port is taken (nobody there); set POSTBOX_TEST_SAMPLE_URL");
  expect(calls()).toBe("");
});

test("says why Docker could not start it", async () => {
  const failing = '#!/bin/sh\n[ "$2" = up ] && echo "no such image" && exit 1\nexit 0\n';
  writeFileSync(join(folder, "docker"), failing);
  const { finding, how } = await startService(service, {}, () => {});
  expect(finding).toHaveProperty("missing");
  expect(how).toContain("docker compose failed");
  expect(how).toContain("no such image");
});
