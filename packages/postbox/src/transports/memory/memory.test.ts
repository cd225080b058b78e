import { describeOn, memoryTransportFeatures, memoryTransportHarness, transportSuite } from "@postbox/testkit";

describeOn({ title: "memory" }, () => {
  transportSuite({ name: "memory", features: memoryTransportFeatures, create: memoryTransportHarness });
});
