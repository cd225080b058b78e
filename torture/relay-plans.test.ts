import { relayPlans } from "./relay-plans.js";

relayPlans({
  pending: 30_000,
  wait: 3_200,
  holds: 640,
  crowd: 6_000,
  queue: 6_000,
  later: 6_000,
  others: 6_400,
  remembered: 30_000,
  audited: 60_000,
});
