import { execFile } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { freePort } from "./free-port.js";
import { createGuardedFolder, type Running } from "./guarded-folder.js";
import type { Recipe } from "./recipe.js";
import { kafka } from "./recipes/kafka.js";
import { mariadb } from "./recipes/mariadb.js";
import { pgbouncer } from "./recipes/pgbouncer.js";
import { postgres } from "./recipes/postgres.js";
import { rabbitmq } from "./recipes/rabbitmq.js";
import { within } from "./within.js";

const recipes = { postgres: () => postgres, mariadb, pgbouncer, rabbitmq, kafka } satisfies Record<
  string,
  (given: string) => Recipe
>;

const startTimeoutMs = 30_000;
const stopTimeoutMs = 15_000;

/** A real server that belongs to one test, which may kill it, pause it by its process id, and restart it. */
export interface DisposableServer extends AsyncDisposable {
  /** Stays the same across restarts, like the port and the data. */
  readonly url: string;
  readonly port: number;
  /** The process id of the server itself; changes with a restart. */
  readonly pid: number;
  /** Kills it with SIGKILL, as in a crash. Resolves when it has ended. */
  kill(): Promise<void>;
  /** Stops it in good order, or with this signal; `restart` starts it again. Resolves when it has ended. */
  halt(signal?: NodeJS.Signals): Promise<void>;
  /** Stops it in good order if it is running, then starts it. Resolves when it accepts connections again. */
  restart(): Promise<void>;
  /** Ends it for good and removes its folder. Idempotent. */
  stop(): Promise<void>;
}

/** A RabbitMQ that belongs to one test. */
export interface DisposableRabbitmq extends DisposableServer {
  /** Runs `rabbitmqctl` on it and returns the output. */
  control(...args: readonly string[]): Promise<string>;
  /**
   * Call it before a kill. A quorum queue that was declared just before does not work afterwards, since its name is not
   * on disk yet.
   */
  keepQueues(): Promise<void>;
}

/**
 * Starts a server with its own process, port and temporary folder, on 127.0.0.1 only. Resolves when it accepts
 * connections. Leaves nothing behind, whether `stop` is called, the start fails, or this process is killed.
 *
 * PostgreSQL comes with npm. MariaDB must be installed, and accepts one more setting of its command line. PgBouncer
 * must be installed; it connects to the PostgreSQL at `upstream`. RabbitMQ must be installed, too, and accepts
 * additional lines of configuration. `POSTBOX_TEST_RABBITMQ_ROOT` names the root of another system whose RabbitMQ is
 * run instead, with `chroot`. Kafka is downloaded with Maven, once, and needs Java; it accepts additional lines of
 * configuration, too.
 *
 * @example
 * ```ts
 * await using server = await disposable("postgres");
 * const pool = new Pool({ connectionString: server.url });
 * ```
 */
export function disposable(name: "rabbitmq", configuration?: string): Promise<DisposableRabbitmq>;
export function disposable(name: "postgres"): Promise<DisposableServer>;
export function disposable(name: "mariadb", setting?: string): Promise<DisposableServer>;
export function disposable(name: "pgbouncer", upstream: string): Promise<DisposableServer>;
export function disposable(name: "kafka", configuration?: string): Promise<DisposableServer>;
export function disposable(name: keyof typeof recipes, given = ""): Promise<DisposableRabbitmq> {
  return run(name, recipes[name](given));
}

/**
 * Starts a Kafka cluster of this many brokers, each a `disposable` of its own. Topics have as many copies as there are
 * brokers, at most three, and stay available while one of three is down. The first group of consumers needs all
 * brokers, because Kafka then creates its topic of offsets.
 *
 * @example
 * ```ts
 * const brokers = await disposableKafkas(3);
 * await brokers[0]?.kill();
 * for (const broker of brokers) await broker.stop();
 * ```
 */
export async function disposableKafkas(count: number, configuration = ""): Promise<readonly DisposableServer[]> {
  const controllers = await Promise.all(Array.from({ length: count }, freePort));
  const copies = Math.min(3, count);
  const lines = [
    `default.replication.factor=${copies}`,
    `min.insync.replicas=${Math.max(1, copies - 1)}`,
    // A killed broker loses its partitions after this time.
    "broker.session.timeout.ms=4000",
    "broker.heartbeat.interval.ms=500",
    configuration,
  ].join("\n");
  // Together: a single one of them does not answer before most of the others run.
  const started = await Promise.allSettled(
    controllers.map((_, at) => run("kafka", kafka(lines, { nodeId: at + 1, controllers }))),
  );
  const brokers = started.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const failed = started.find((each) => each.status === "rejected");
  if (failed === undefined) return brokers;
  for (const broker of brokers) await broker.stop();
  throw failed.reason;
}

async function run(name: string, recipe: Recipe): Promise<DisposableRabbitmq> {
  const folder = createGuardedFolder(recipe.parent);
  try {
    const server = await recipe.prepare(folder);
    const port = await freePort();
    const url = server.url(port);
    const orderly = server.command(port).stopSignal ?? "SIGTERM";
    let running: Running | undefined;

    const end = async (signal: NodeJS.Signals) => {
      if (!running) return;
      const { pid, ended } = running;
      try {
        process.kill(pid, signal);
      } catch {
        // It has just ended by itself; the exit event follows.
      }
      await within(stopTimeoutMs, ended, () => `${name} (process ${pid}) did not end on ${signal}`);
    };
    const start = async (patienceMs = 0) => {
      const giveUp = Date.now() + patienceMs;
      while (!running) {
        const started = await folder.start(server.command(port));
        if (await answers(() => server.probe(url), started)) {
          running = started;
          started.ended.then(() => {
            running = undefined;
          });
        } else if (Date.now() < giveUp) await sleep(50);
        else throw new Error(`${name} did not start on port ${port}:\n${await folder.log()}`);
      }
    };

    const control = async (...args: readonly string[]) => {
      const command = server.control?.(args);
      if (!command) throw new Error(`${name} has no program to control it with`);
      const { stdout } = await promisify(execFile)(command.file, [...command.args], {
        cwd: folder.path,
        env: { ...process.env, ...command.env },
        ...command.account,
      });
      return stdout;
    };

    await start();
    return {
      url,
      port,
      get pid() {
        if (!running) throw new Error(`${name} on port ${port} does not run`);
        return running.pid;
      },
      kill: () => end("SIGKILL"),
      halt: (signal = orderly) => end(signal),
      restart: async () => {
        await end(orderly);
        // The children of a killed server hold its data for a moment longer, and until then a new server ends at once.
        await start(10_000);
      },
      control,
      keepQueues: async () => {
        await control("eval", "[dets:sync(Table) || Table <- dets:all()].");
      },
      stop,
      [Symbol.asyncDispose]: stop,
    };

    async function stop() {
      if (!running) await server.tidyAfterKill?.();
      await folder.release();
    }
  } catch (error) {
    await folder.release();
    throw error;
  }
}

/** Whether the server answers in time, and before it ends. */
async function answers(probe: () => Promise<unknown>, server: Running): Promise<boolean> {
  const deadline = Date.now() + startTimeoutMs;
  let ended = false;
  server.ended.then(() => {
    ended = true;
  });
  while (!ended && Date.now() < deadline) {
    try {
      await probe();
      return true;
    } catch {
      await sleep(25);
    }
  }
  return false;
}
