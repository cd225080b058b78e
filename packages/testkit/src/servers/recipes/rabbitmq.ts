import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { chown, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { freePort } from "../free-port.js";
import type { Command } from "../guarded-folder.js";
import { unprivilegedAccount } from "../postgres-programs.js";
import type { Recipe } from "../recipe.js";
import { rabbitmqVersion } from "../services/rabbitmq.js";

/** Where Debian keeps its programs, and where an unpacked release does. Not the ones on the path: those switch to a user of their own. */
function programs(): string {
  const released = process.env.RABBITMQ_HOME;
  const folders = ["/usr/lib/rabbitmq/bin", ...(released === undefined ? [] : [join(released, "sbin")])];
  const found = folders.find((folder) => existsSync(join(folder, "rabbitmq-server")));
  if (found === undefined) {
    throw new Error(
      "RabbitMQ is not installed; install the package rabbitmq-server, or set RABBITMQ_HOME to a release",
    );
  }
  return found;
}

/** A RabbitMQ of this machine, with `configuration` (lines of rabbitmq.conf) beside its own. */
export function rabbitmq(configuration: string): Recipe {
  return {
    prepare: async (folder) => {
      const from = programs();
      const account = unprivilegedAccount();
      const own = (name: string) => join(folder.path, name);
      // Others on this machine can reach the port.
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

      /** Erlang's name server would be started on demand, listen everywhere, and stay. With a fixed port nobody asks it. */
      const erlang = `-start_epmd false -erl_epmd_port ${erlangPort} -kernel inet_dist_use_interface {127,0,0,1}`;
      const environment = {
        HOME: folder.path,
        RABBITMQ_NODENAME: `postbox${erlangPort}@localhost`,
        RABBITMQ_CONF_ENV_FILE: own("environment"),
        RABBITMQ_CONFIG_FILE: own("rabbitmq.conf"),
        RABBITMQ_ENABLED_PLUGINS_FILE: own("plugins"),
        RABBITMQ_MNESIA_BASE: own("data"),
        RABBITMQ_LOG_BASE: own("logs"),
        RABBITMQ_LOGS: "-",
      };
      return {
        command: (port): Command => ({
          file: join(from, "rabbitmq-server"),
          args: [],
          account,
          env: {
            ...environment,
            RABBITMQ_NODE_IP_ADDRESS: "127.0.0.1",
            RABBITMQ_NODE_PORT: `${port}`,
            RABBITMQ_DIST_PORT: `${erlangPort}`,
            ERL_AFLAGS: erlang,
            // The process is the server then, and no script that waits for it.
            RABBITMQ_ALLOW_INPUT: "1",
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: "-noinput",
          },
        }),
        url: (port) => `amqp://guest:${password}@127.0.0.1:${port}`,
        probe: rabbitmqVersion,
        control: (args): Command => ({
          file: join(from, "rabbitmqctl"),
          args: ["--node", environment.RABBITMQ_NODENAME, ...args],
          account,
          env: { ...environment, ERL_AFLAGS: `${erlang} -dist_listen false` },
        }),
      };
    },
  };
}
