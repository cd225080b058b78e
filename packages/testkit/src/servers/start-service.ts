import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Finding, findService } from "./find-services.js";
import { runCommand } from "./run-command.js";
import type { DebianPackage, Service } from "./service.js";

const installTimeoutMs = 5 * 60_000;
const startTimeoutMs = 90_000;

/** A service, after an attempt to find or start it. */
export interface Attempt {
  readonly finding: Finding;
  /** How it was found or started, or what failed. */
  readonly how: string;
}

/**
 * Uses `service` if it answers. Otherwise starts it with Docker, or else from Debian's packages or in its own way.
 * Idempotent, bounded in time, never rejects. It changes no server that it did not install: an address from the
 * environment, or a port where something refuses the connection, is only reported.
 */
export async function startService(
  service: Service,
  environment: NodeJS.ProcessEnv,
  say: (line: string) => void,
): Promise<Attempt> {
  const finding = await findService(service, environment);
  if ("version" in finding) return { finding, how: "already running" };
  if (environment[service.variable]) {
    return { finding, how: `no answer at ${service.variable}: ${finding.missing}` };
  }
  if (await listens(finding.url)) {
    return { finding, how: `its port is taken (${finding.missing}); set ${service.variable}` };
  }
  const start = await starterHere(service);
  if (!start) return { finding, how: `no Docker engine, and not root on Debian; set ${service.variable}` };
  try {
    say(`${service.title}: ${start.how}…`);
    await start.run();
    return { finding: await waitForAnswer(service, environment), how: start.how };
  } catch (error) {
    return { finding, how: `${start.how} failed: ${(error as Error).message}` };
  }
}

interface Starter {
  readonly how: string;
  run(): Promise<void>;
}

/** The first way of starting `service` that this machine supports. */
async function starterHere(service: Service): Promise<Starter | undefined> {
  if ((await succeeds("docker", ["info"])) && (await succeeds("docker", ["compose", "version"]))) {
    return {
      how: "docker compose",
      run: async () => {
        await runCommand("docker", ["compose", "up", "--detach", "--wait", service.name], installTimeoutMs);
      },
    };
  }
  const { debian, own } = service;
  if (debian !== undefined && process.getuid?.() === 0 && existsSync("/usr/bin/apt-get")) {
    return { how: `Debian package ${debian.package}`, run: () => startFromDebian(debian) };
  }
  if (own !== undefined) return { how: own.how, run: () => own.start() };
  return undefined;
}

async function startFromDebian(debian: DebianPackage): Promise<void> {
  const installed = await succeeds("dpkg-query", ["--status", debian.package]);
  if (!installed) {
    for (const [path, text] of Object.entries(debian.configuration)) {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, text);
    }
    // If it fails, older package lists may do; if not, the installation reports what is wrong.
    await runCommand("apt-get", ["update"], installTimeoutMs).catch(() => {});
    await runCommand("apt-get", ["install", "--yes", "--no-install-recommends", debian.package], installTimeoutMs);
  }
  await runCommand("sh", ["-c", debian.start], startTimeoutMs);
  if (!installed && debian.afterInstallation) await runCommand("sh", ["-c", debian.afterInstallation], startTimeoutMs);
}

async function waitForAnswer(service: Service, environment: NodeJS.ProcessEnv): Promise<Finding> {
  const deadline = Date.now() + startTimeoutMs;
  for (;;) {
    const finding = await findService(service, environment);
    if ("version" in finding) return finding;
    if (Date.now() > deadline) throw new Error(`started, but no answer within ${startTimeoutMs / 1000} s`);
    await sleep(250);
  }
}

function succeeds(command: string, args: readonly string[]): Promise<boolean> {
  return runCommand(command, args, 10_000).then(
    () => true,
    () => false,
  );
}

function listens(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect({ host: hostname, port: Number(port), timeout: 2_000 });
    const settle = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.once("connect", () => settle(true));
    socket.once("timeout", () => settle(false));
    socket.once("error", () => settle(false));
  });
}
