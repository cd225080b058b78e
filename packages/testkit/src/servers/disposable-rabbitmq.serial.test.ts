import { existsSync } from "node:fs";
import { join } from "node:path";
import { connect } from "amqplib";
import { expect, test } from "vitest";
import { disposable } from "./disposable.js";

test("a RabbitMQ keeps what was confirmed through a kill and a restart, and leaves nothing behind", async () => {
  const server = await disposable("rabbitmq");
  let folder: string;
  try {
    await expect(connect(server.url.replace(/:[0-9a-f]+@/, ":wrong@"))).rejects.toThrow("ACCESS-REFUSED");
    const before = await connect(server.url);
    before.on("error", () => {});
    const channel = await before.createConfirmChannel();
    await channel.assertQueue("survivor", { arguments: { "x-queue-type": "quorum" } });
    channel.sendToQueue("survivor", Buffer.from("7"), { persistent: true });
    await channel.waitForConfirms();
    await server.keepQueues();
    await server.kill();
    await expect(connect(server.url)).rejects.toThrow("ECONNREFUSED");

    await server.restart();
    const after = await connect(server.url);
    const message = await (await after.createChannel()).get("survivor");
    expect(message).toMatchObject({ content: Buffer.from("7") });
    await after.close();
    const home = (await server.control("eval", 'os:getenv("HOME").')).trim().replaceAll('"', "");
    folder = join(process.env.POSTBOX_TEST_RABBITMQ_ROOT ?? "/", home);
    expect(existsSync(folder)).toBe(true);
  } finally {
    await server.stop();
  }
  expect(existsSync(folder)).toBe(false);
  expect(() => server.pid).toThrow("does not run");
}, 60_000);
