import { testMessage } from "@postbox/testkit";
import { expect, it } from "vitest";
import { toAmqp } from "./amqp-message.js";

it("lets no extension take the place of an attribute", () => {
  // SQL can insert a row like this.
  const forged = { ...testMessage("1"), extensions: { id: "other", type: "evil", specversion: "9", mine: "kept" } };
  expect(toAmqp(forged, "binary").properties.headers).toMatchObject({
    "cloudEvents:id": "1",
    "cloudEvents:type": forged.type,
    "cloudEvents:specversion": "1.0",
    "cloudEvents:mine": "kept",
  });
});
