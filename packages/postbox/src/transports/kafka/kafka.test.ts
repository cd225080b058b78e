import { randomUUID } from "node:crypto";
import { canRunKafka, type DisposableServer, describeOnEach, disposable } from "@postbox/testkit/servers";
import { transportSuite } from "@postbox/testkit/suites";
import { afterAll, beforeAll, describe } from "vitest";
import { kafkaFeatures, kafkaPasswords, testKafka } from "../../../fixtures/kafka-broker.js";
import { kafkaReceiver, kafkaSender } from "./index.js";

describeOnEach("kafka", ({ url }) => {
  const broker = testKafka(() => url);
  for (const mode of ["binary", "structured"] as const) {
    transportSuite({
      name: `kafka, ${mode}`,
      features: kafkaFeatures,
      create: () => broker.harness(mode),
    });
  }
});

describe.skipIf(!canRunKafka())("a Kafka of its own", () => {
  let server: DisposableServer;
  beforeAll(async () => {
    server = await disposable("kafka", kafkaPasswords);
  });
  // Registered before the hooks of the broker, because hooks run in reverse order.
  afterAll(() => server?.stop());
  const broker = testKafka(() => server.url.replace("kafka://", "kafka://shop:s%3Acr%40t@"));
  transportSuite({
    name: "kafka that may be killed",
    features: { ...kafkaFeatures, passwords: true, restarts: true },
    create: async () => ({
      ...(await broker.harness("binary")),
      intruders(queue, telemetry) {
        const password = `wrong-${randomUUID()}`;
        const wrong = { url: server.url.replace("kafka://", `kafka://shop:${password}@`), telemetry };
        return { password, sender: kafkaSender(wrong), receiver: kafkaReceiver({ ...wrong, group: queue }) };
      },
      async restart() {
        await server.kill();
        await server.restart();
      },
    }),
  });
});
