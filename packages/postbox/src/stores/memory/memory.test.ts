import {
  crashSuite,
  describeOn,
  inboxSuite,
  memoryStoreFeatures,
  memoryStoreHarness,
  relaySuite,
  storeSuite,
} from "@postbox/testkit";

const memory = { name: "memory", features: memoryStoreFeatures, create: memoryStoreHarness };

describeOn({ title: "memory" }, () => {
  storeSuite(memory);
  relaySuite(memory);
  inboxSuite(memory);
  crashSuite(memory);
});
