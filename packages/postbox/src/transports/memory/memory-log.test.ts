import { describeOn, memoryLogFeatures, memoryLogHarness, transportSuite } from "@postbox/testkit";

describeOn({ title: "memory log" }, () => {
  transportSuite({ name: "memory log", features: memoryLogFeatures, create: memoryLogHarness });
});
