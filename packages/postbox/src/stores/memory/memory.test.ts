import { crashSuite, memoryStoreFeatures, memoryStoreHarness, relaySuite, storeSuite } from "@postbox/testkit";

const memory = { name: "memory", features: memoryStoreFeatures, create: memoryStoreHarness };

storeSuite(memory);
relaySuite(memory);
crashSuite(memory);
