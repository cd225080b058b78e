import { expect, inject, test } from "vitest";
import { requiredServices } from "../servers/catalogue.js";

const { missing } = inject("servers");

test("the embedded PostgreSQL runs, unless it is switched off", () => {
  expect(missing.filter((server) => server.service === "embedded")).toEqual([]);
});

test("every service that POSTBOX_TEST_REQUIRE names answers", () => {
  const required = requiredServices(process.env).map((service) => service.name);
  expect(missing.filter((server) => required.includes(server.service))).toEqual([]);
});
