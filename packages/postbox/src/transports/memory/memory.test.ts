import { memoryTransportFeatures, memoryTransportHarness, transportSuite } from "@postbox/testkit";

transportSuite({ name: "memory", features: memoryTransportFeatures, create: memoryTransportHarness });
