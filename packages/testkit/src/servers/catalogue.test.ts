import { expect, test } from "vitest";
import { catalogue, requiredServices } from "./catalogue.js";
import { findServices } from "./find-services.js";
import { shownAddress } from "./service.js";

const namesFor = (value?: string) => requiredServices({ POSTBOX_TEST_REQUIRE: value }).map(({ name }) => name);

test("POSTBOX_TEST_REQUIRE is nothing, everything, or a list", () => {
  expect(namesFor(undefined)).toEqual([]);
  expect(namesFor("")).toEqual([]);
  expect(namesFor("all")).toEqual(catalogue.map(({ name }) => name));
  expect(namesFor("rabbitmq, postgres")).toEqual(["rabbitmq", "postgres"]);
  expect(() => namesFor("rabitmq")).toThrow('names "rabitmq"');
});

test("an address can be overridden, and one where nothing answers is missing with a reason", async () => {
  const findings = await findServices({
    POSTBOX_TEST_POSTGRES_URL: "postgres://me:secret@127.0.0.1:1/none",
    POSTBOX_TEST_PGBOUNCER_URL: "postgres://me:secret@127.0.0.1:1/none",
    POSTBOX_TEST_MARIADB_URL: "mysql://me:secret@127.0.0.1:1",
    POSTBOX_TEST_RABBITMQ_URL: "amqp://127.0.0.1:1",
    POSTBOX_TEST_KAFKA_URL: "kafka://127.0.0.1:1",
  });
  const postgres = "postgres://me:secret@127.0.0.1:1/none";
  expect(findings.map(({ url }) => url)).toEqual([
    postgres,
    postgres,
    "mysql://me:secret@127.0.0.1:1",
    "amqp://127.0.0.1:1",
    "kafka://127.0.0.1:1",
  ]);
  for (const finding of findings) expect(finding).toHaveProperty("missing", expect.stringContaining("ECONNREFUSED"));
});

test("passwords are not shown", () => {
  expect(shownAddress("postgres://me:secret@127.0.0.1:1/none")).toBe("postgres://me@127.0.0.1:1/none");
});
