import { spawn } from "node:child_process";
import { type DebianRoot, debianRoot } from "@postbox/testkit/servers";
import { describe, expect, it } from "vitest";

/** RabbitMQ as other releases of Debian have it: every test of the transport runs against each. */
describe.each([
  ["trixie", "RabbitMQ 4.0"],
  ["sid", "the newest RabbitMQ of Debian"],
])("Debian %s, which has %s", (release) => {
  it(
    "passes the tests of the transport",
    async ({ skip }) => {
      let root: DebianRoot;
      try {
        root = await debianRoot(release, "rabbitmq-server");
      } catch (error) {
        return skip(`it cannot be installed here: ${(error as Error).message}`);
      }
      try {
        const { code, output } = await transportTests(root.path);
        console.log(output.slice(output.lastIndexOf("on Node.js")));
        expect(code, output.split("\n").slice(-60).join("\n")).toBe(0);
      } finally {
        await root[Symbol.asyncDispose]();
      }
    },
    40 * 60_000,
  );
});

/** In a run of their own, whose servers come from this root. */
function transportTests(root: string): Promise<{ code: number | null; output: string }> {
  const { POSTBOX_TEST_LONG: _, ...environment } = process.env;
  const args = ["vitest", "run", "packages/postbox/src/transports/rabbitmq"];
  const child = spawn("npx", args, {
    env: { ...environment, POSTBOX_TEST_RABBITMQ_ROOT: root },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 20 * 60_000,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk) => {
      output += chunk;
    });
  }
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, output }));
  });
}
