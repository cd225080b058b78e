import { describeOn } from "@postbox/testkit/servers";
import { memoryTransportFeatures, memoryTransportHarness, transportSuite } from "@postbox/testkit/suites";

describeOn({ title: "memory" }, () => {
  transportSuite({ name: "memory", features: memoryTransportFeatures, create: memoryTransportHarness });
});
