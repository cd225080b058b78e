import { describeOn } from "@postbox/testkit/servers";
import {
  crashSuite,
  inboxSuite,
  memoryStoreFeatures,
  memoryStoreHarness,
  relaySuite,
  storeSuite,
} from "@postbox/testkit/suites";

const memory = { name: "memory", features: memoryStoreFeatures, create: memoryStoreHarness };

describeOn({ title: "memory" }, () => {
  storeSuite(memory);
  relaySuite(memory);
  inboxSuite(memory);
  crashSuite(memory);
});
