import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { chown, mkdir } from "node:fs/promises";
import { join, relative } from "node:path";
import { freePort } from "../free-port.js";
import type { Command } from "../guarded-folder.js";
import { unprivilegedAccount } from "../postgres-programs.js";
import type { Recipe } from "../recipe.js";
import { rabbitmqVersion } from "../services/rabbitmq.js";

/**
 * Where Debian installs its programs, and where an unpacked release has them. Those on the path do not work, since they
 * switch to another user.
 */
function programs(root: string): string {
  const released = process.env.RABBITMQ_HOME;
  const folders = ["/usr/lib/rabbitmq/bin", ...(released === undefined ? [] : [join(released, "sbin")])];
  const found = folders.find((folder) => existsSync(join(root, folder, "rabbitmq-server")));
  if (found === undefined) {
    throw new Error(
      "RabbitMQ is not installed; install the package rabbitmq-server, or set RABBITMQ_HOME to a release",
    );
  }
  return found;
}

/**
 * A RabbitMQ of this machine, or of the system at `POSTBOX_TEST_RABBITMQ_ROOT`, with additional lines of rabbitmq.conf
 * in `configuration`.
 */
export function rabbitmq(configuration: string): Recipe {
  const root = process.env.POSTBOX_TEST_RABBITMQ_ROOT ?? "/";
  return {
    // With another root, it sees nothing outside of that root.
    ...(root !== "/" && { parent: join(root, "tmp") }),
    prepare: async (folder) => {
      const from = programs(root);
      const account = unprivilegedAccount();
      const own = (name: string) => join(folder.path, name);
      const seen = (path: string) => join("/", relative(root, path));
      /**
       * Only root may change the root. RabbitMQ reads /proc, which is mounted for this process and its children only.
       */
      const within = (program: string, args: readonly string[]) =>
        root === "/"
          ? { file: program, args, account }
          : {
              file: "unshare",
              args: [
                ...["--mount", "sh", "-ec", 'mount --bind /proc "$1/proc"; shift; exec chroot "$@"', "sh", root],
                ...[`--userspec=${account?.uid}:${account?.gid}`, root, program, ...args],
              ],
            };
      // Other users of this machine can reach the port.
      const password = randomBytes(16).toString("hex");
      const erlangPort = await freePort();
      for (const name of ["data", "logs"]) await mkdir(own(name));
      writeFileSync(own("plugins"), "[].\n");
      writeFileSync(own("environment"), "");
      writeFileSync(own("rabbitmq.conf"), `default_pass = ${password}\n${configuration}\n`, { mode: 0o600 });
      if (account) {
        for (const path of [folder.path, ...readdirSync(folder.path).map(own)])
          await chown(path, account.uid, account.gid);
      }

      /**
       * Erlang's name server would be started on demand, listen on all interfaces, and keep running. With a fixed port
       * it is not needed.
       */
      const erlang = `-start_epmd false -erl_epmd_port ${erlangPort} -kernel inet_dist_use_interface {127,0,0,1}`;
      const environment = {
        HOME: seen(folder.path),
        RABBITMQ_NODENAME: `postbox${erlangPort}@localhost`,
        RABBITMQ_CONF_ENV_FILE: seen(own("environment")),
        RABBITMQ_CONFIG_FILE: seen(own("rabbitmq.conf")),
        RABBITMQ_ENABLED_PLUGINS_FILE: seen(own("plugins")),
        RABBITMQ_MNESIA_BASE: seen(own("data")),
        RABBITMQ_LOG_BASE: seen(own("logs")),
        RABBITMQ_LOGS: "-",
      };
      return {
        command: (port): Command => ({
          ...within(join(from, "rabbitmq-server"), []),
          env: {
            ...environment,
            RABBITMQ_NODE_IP_ADDRESS: "127.0.0.1",
            RABBITMQ_NODE_PORT: `${port}`,
            RABBITMQ_DIST_PORT: `${erlangPort}`,
            ERL_AFLAGS: erlang,
            // Makes the process the server itself, and not a script that waits for it.
            RABBITMQ_ALLOW_INPUT: "1",
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: "-noinput",
          },
        }),
        url: (port) => `amqp://guest:${password}@127.0.0.1:${port}`,
        probe: rabbitmqVersion,
        control: (args): Command => ({
          ...within(join(from, "rabbitmqctl"), ["--node", environment.RABBITMQ_NODENAME, ...args]),
          env: { ...environment, ERL_AFLAGS: `${erlang} -dist_listen false` },
        }),
      };
    },
  };
}
