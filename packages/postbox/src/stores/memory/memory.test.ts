import { memoryStoreFeatures, memoryStoreHarness, storeSuite } from "@postbox/testkit";

storeSuite({ name: "memory", features: memoryStoreFeatures, create: memoryStoreHarness });
