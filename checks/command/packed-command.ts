import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const root = join(import.meta.dirname, "../..");
/** What a user has installed beside the command: its dependencies, and the drivers. */
const beside = ["commander", "jiti", "picocolors", "pg", "mysql2", "amqplib", "kafkajs", "libsql"];

interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Written to its standard input. Defaults to nothing. */
  readonly input?: string;
}

/** The `postbox` command as users install it, in a folder of its own. */
export interface PackedCommand {
  readonly folder: string;
  /** Runs it until it ends. */
  run(args: readonly string[], options?: RunOptions): Promise<Ended>;
  /** Starts it. */
  start(args: readonly string[], options?: RunOptions): Running;
  remove(): void;
}

interface Running {
  readonly process: ChildProcessWithoutNullStreams;
  /** Resolves once standard error contains this text; rejects if the process ends before. */
  said(text: string): Promise<void>;
  readonly ended: Promise<Ended>;
}

/** Packs the library and the command as `npm publish` would, and unpacks them. Needs what `npm run build` makes. */
export async function packedCommand(): Promise<PackedCommand> {
  const folder = mkdtempSync(join(tmpdir(), "postbox-command-"));
  const modules = join(folder, "node_modules");
  for (const [name, source] of [
    ["postbox", "packages/postbox"],
    ["@postbox/cli", "packages/cli"],
  ] as const) {
    const packed = join(folder, "packed");
    mkdirSync(packed);
    await run("npm", ["pack", join(root, source), "--ignore-scripts", `--pack-destination=${packed}`], folder);
    const [tarball] = readdirSync(packed) as [string];
    await run("tar", ["-xzf", join(packed, tarball), "-C", packed], folder);
    mkdirSync(dirname(join(modules, name)), { recursive: true });
    cpSync(join(packed, "package"), join(modules, name), { recursive: true });
    rmSync(packed, { recursive: true });
  }
  for (const name of beside) symlinkSync(installed(name), join(modules, name));
  const program = join(modules, "@postbox/cli/bin/postbox.js");

  function start(args: readonly string[], { env = {}, input = "" }: RunOptions = {}): Running {
    const { POSTBOX_DATABASE_URL: _, POSTBOX_BROKER_URL: __, POSTBOX_SCHEMA: ___, ...clean } = process.env;
    const child = spawn(process.execPath, [program, ...args], { cwd: folder, env: { ...clean, ...env } });
    let [out, err] = ["", ""];
    const heard = new Set<() => void>();
    child.stdout.setEncoding("utf8").on("data", (text) => {
      out += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text) => {
      err += text;
      for (const each of heard) each();
    });
    child.stdin.on("error", () => {});
    child.stdin.end(input);
    const ended = new Promise<Ended>((resolve) => child.once("close", (code) => resolve({ code, out, err })));
    return {
      process: child,
      ended,
      said: (text) =>
        new Promise((resolve, reject) => {
          const check = () => {
            if (!err.includes(text)) return;
            heard.delete(check);
            resolve();
          };
          heard.add(check);
          check();
          void ended.then(({ code }) => reject(new Error(`it ended with ${code} before it said "${text}": ${err}`)));
        }),
    };
  }

  return {
    folder,
    start,
    run: (args, options) => start(args, options).ended,
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Where npm has installed a package for the command: its own version, or the one that all share. */
function installed(name: string): string {
  const own = join(root, "packages/cli/node_modules", name);
  return existsSync(own) ? own : join(root, "node_modules", name);
}

async function run(command: string, args: readonly string[], cwd: string): Promise<void> {
  await promisify(execFile)(command, args, { cwd });
}
