import { type DisposableServer, describeOnEach, disposable } from "@postbox/testkit/servers";
import { transportSuite } from "@postbox/testkit/suites";
import { afterAll, beforeAll, describe } from "vitest";
import { testKafka } from "../../../fixtures/kafka-broker.js";

const features = {
  keepsOrder: true,
  // A topic takes every type.
  unroutable: false,
  onUnroutable: false,
  exactAttempts: false,
  settlesEach: false,
  selectsTypes: false,
  competing: false,
  streams: true,
  revokes: true,
  releaseUncounted: true,
  prefetch: true,
  prefetchBytes: true,
  singleActive: false,
  maxMessageBytes: true,
  routes: true,
  unbinds: false,
  scopes: false,
  outage: true,
  reconnects: true,
  connectionBound: false,
  health: true,
  passwords: false,
  refusesParking: false,
  blocks: false,
} as const;

describeOnEach("kafka", ({ url }) => {
  const broker = testKafka(() => url);
  for (const mode of ["binary", "structured"] as const) {
    transportSuite({
      name: `kafka, ${mode}`,
      features: { ...features, restarts: false },
      create: () => broker.harness(mode),
    });
  }
});

describe("a Kafka of its own", () => {
  let server: DisposableServer;
  beforeAll(async () => {
    server = await disposable("kafka");
  });
  // Registered before the hooks of the broker, because hooks run in reverse order.
  afterAll(() => server?.stop());
  const broker = testKafka(() => server.url);
  transportSuite({
    name: "kafka that may be killed",
    features: { ...features, restarts: true },
    create: async () => ({
      ...(await broker.harness("binary")),
      async restart() {
        await server.kill();
        await server.restart();
      },
    }),
  });
});
