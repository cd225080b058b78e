import { describeOn } from "@postbox/testkit/servers";
import { memoryLogFeatures, memoryLogHarness, transportSuite } from "@postbox/testkit/suites";

describeOn({ title: "memory log" }, () => {
  transportSuite({ name: "memory log", features: memoryLogFeatures, create: memoryLogHarness });
});
