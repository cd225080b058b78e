import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createMessaging, type EnvMessagingOptions, messagingOptionsFromEnv } from "postbox";
import { memoryBroker } from "postbox/memory";
import { describe, expect, it } from "vitest";

describe("messagingOptionsFromEnv", () => {
  const good: [variable: string, values: readonly string[], options: EnvMessagingOptions][] = [
    ["POSTBOX_ENABLE_OUTBOX", ["true", "TRUE", "1", "yes", "Yes", " true "], { outbox: true }],
    ["POSTBOX_ENABLE_OUTBOX", ["false", "False", "0", "no", "NO"], { outbox: false }],
    ["POSTBOX_ENABLE_INBOX", ["true", "1", "yes"], { inbox: true }],
    ["POSTBOX_ENABLE_INBOX", ["false", "0", "no"], { inbox: false }],
    ["POSTBOX_ENABLE_INBOX", ["durable", "Durable"], { inbox: "durable" }],
    ["POSTBOX_SERVICE_NAME", ["orders", " orders\n"], { service: "orders" }],
    ["POSTBOX_CONSUMER_GROUP", ["order-workers"], { group: "order-workers" }],
    ["POSTBOX_POLL_INTERVAL_MS", ["250"], { pollIntervalMs: 250 }],
    ["POSTBOX_BATCH_SIZE", ["1", "001"], { batchSize: 1 }],
    ["POSTBOX_MAX_ATTEMPTS", ["3"], { maxAttempts: 3 }],
    ["POSTBOX_DATABASE_URL", ["postgres://u:p@h/d"], { databaseUrl: "postgres://u:p@h/d" }],
    ["POSTBOX_DATABASE_URL", ["memory:"], { databaseUrl: "memory:" }],
    ["POSTBOX_BROKER_URL", ["amqps://u:p@h"], { brokerUrl: "amqps://u:p@h" }],
  ];
  it.each(good)("reads %s: %j", (variable, values, options) => {
    for (const value of values) expect(messagingOptionsFromEnv({ [variable]: value })).toEqual(options);
  });

  const flags = ["", " ", "on", "off", "2", "truee", "y", "null", "tru", "durable"];
  const numbers = ["", "0", "-1", "1.5", "1e3", "0x10", "ten", "1 000", "Infinity", "9007199254740993", "NaN"];
  const urls = ["", "secret", "user:secret pass", "//h/secret", "1http://secret"];
  const bad: [variable: string, values: readonly string[], expected: string][] = [
    ["POSTBOX_ENABLE_OUTBOX", flags, "true or false (or 1, 0, yes, no)"],
    ["POSTBOX_ENABLE_INBOX", flags.slice(0, -1), "true, false (or 1, 0, yes, no) or durable"],
    ["POSTBOX_POLL_INTERVAL_MS", numbers, "a whole number of at least 1"],
    ["POSTBOX_BATCH_SIZE", numbers, "a whole number of at least 1"],
    ["POSTBOX_MAX_ATTEMPTS", numbers, "a whole number of at least 1"],
    ["POSTBOX_DATABASE_URL", urls, "a URL such as postgres://user@host/database"],
    ["POSTBOX_BROKER_URL", urls, "a URL such as memory:"],
    ["POSTBOX_SERVICE_NAME", ["", "  "], "the service's name"],
    ["POSTBOX_CONSUMER_GROUP", [""], "a consumer's name"],
  ];
  it.each(bad)("refuses %s: %j", (variable, values, expected) => {
    for (const value of values) {
      const read = () => messagingOptionsFromEnv({ [variable]: value });
      const refusal = expect.objectContaining({ name: "ConfigError", code: "option-invalid", path: variable });
      expect(read, value).toThrow(refusal);
      expect(read).not.toThrow("secret");
      const found = value.trim() === "" ? "it is empty; unset it for the default" : "its value is something else";
      expect(read).toThrow(`[option-invalid] ${variable} must be ${expected}; ${found}`);
    }
  });

  it.each([
    ["POSTBOX_ENABLE_OUTBX", "did you mean POSTBOX_ENABLE_OUTBOX?"],
    ["POSTBOX_OUTBOX", "known are POSTBOX_SERVICE_NAME, POSTBOX_CONSUMER_GROUP, POSTBOX_ENABLE_OUTBOX"],
    ["POSTBOX_DATABASE", "did you mean POSTBOX_DATABASE_URL?"],
    ["POSTBOX_POLL_INTERVAL", "did you mean POSTBOX_POLL_INTERVAL_MS?"],
    ["postbox_enable_inbox", "did you mean POSTBOX_ENABLE_INBOX?"],
    ["POSTBOX_constructor", "known are "],
  ])("refuses the unknown %s", (variable, advice) => {
    const read = () => messagingOptionsFromEnv({ [variable]: "postgres://u:secret@h" });
    expect(read).toThrow(expect.objectContaining({ name: "ConfigError", code: "option-unknown", path: variable }));
    expect(read).toThrow(`unknown variable ${variable}; ${advice}`);
    expect(read).not.toThrow("secret");
  });

  it("leaves alone what is unset, what is somebody else's, and what tests are told by", () => {
    const others = { PATH: "/bin", POSTBOX: "1", MY_POSTBOX_X: "1", POSTBOX_TEST_REQUIRE: "all" };
    expect(messagingOptionsFromEnv({ ...others, POSTBOX_BATCH_SIZE: undefined })).toEqual({});
  });

  it("has an example whose variables all have an effect", () => {
    const source = readFileSync(join(import.meta.dirname, "messaging-options-from-env.ts"), "utf8");
    const [, example = ""] = /^ \*.*messagingOptionsFromEnv\(\{ (.*) \}\)/m.exec(source) ?? [];
    const env = Object.fromEntries([...example.matchAll(/(\w+): "(\w+)"/g)].map(([, name, value]) => [name, value]));
    expect(messagingOptionsFromEnv(env)).toEqual({ outbox: true, inbox: true });
  });

  it("is for createMessaging, whatever is set", () => {
    const env = { POSTBOX_SERVICE_NAME: "orders", POSTBOX_DATABASE_URL: "memory:", POSTBOX_BROKER_URL: "memory:" };
    const numbers = { POSTBOX_POLL_INTERVAL_MS: "100", POSTBOX_BATCH_SIZE: "10", POSTBOX_MAX_ATTEMPTS: "3" };
    const options = messagingOptionsFromEnv({ ...env, ...numbers, POSTBOX_CONSUMER_GROUP: "workers" });
    expect(() => createMessaging({ service: "shop", sender: memoryBroker().sender(), ...options })).not.toThrow();
  });
});
