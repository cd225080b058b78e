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

const features = { ...memoryStoreFeatures, lateCommits: false };
const inOrder = {
  name: "memory, in commit order",
  features,
  create: () => memoryStoreHarness({ inCommitOrder: true }),
};

describeOn({ title: "memory" }, () => {
  storeSuite(inOrder);
  relaySuite(inOrder);
});
