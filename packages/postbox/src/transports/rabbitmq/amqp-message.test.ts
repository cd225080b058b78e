import { testMessage } from "@postbox/testkit";
import { expect, it } from "vitest";
import { toAmqp } from "./amqp-message.js";

it("lets no extension take the place of an attribute", () => {
  // As a row may have it that was inserted by SQL.
  const forged = { ...testMessage("1"), extensions: { id: "other", type: "evil", specversion: "9", mine: "kept" } };
  expect(toAmqp(forged, "binary").properties.headers).toMatchObject({
    "cloudEvents:id": "1",
    "cloudEvents:type": forged.type,
    "cloudEvents:specversion": "1.0",
    "cloudEvents:mine": "kept",
  });
});
