/**
 * What something in the library exists for. A simulation that never meets one of these proves nothing about it, so they are
 * counted, and those that were not met are told.
 */
export const situations = [
  "a late commit was found",
  "a message went behind a failed one of its key",
  "a message was read before the failure ahead of it was stored",
  "a read brought what was settled meanwhile",
  "a settle came after its lane was lost",
  "a lane was taken from one who had died",
  "a relay lost lanes",
  "a relay gave lanes back",
  "a total order waited for a gap",
  "a message killed who sent it",
  "a suspect was counted",
  "a message was parked",
  "a confirm got lost",
  "a confirm came after it was given up",
  "a read ended at its bytes",
  "a breaker opened",
  "a connection was half open",
  "a COMMIT was cut off",
  "a box was handled without a broker",
  "a hint got lost",
  "a COMMIT happened whose answer was lost",
  "the inbox skipped a repetition",
  "an inbox has kept what failed",
  "an inbox knew what came again",
  "a message was handled from an inbox",
  "a message was older than an inbox remembers",
  "an inbox has forgotten something",
  "a message of an inbox was another's by then",
  "a handler failed and was retried",
  "a consumer parked a message",
  "an operator has retried something",
  "an operator has discarded something",
  "an operator has replayed something",
  "an operator has released a key",
  "a box was paused",
  "a scheduled message came due",
] as const;

export type Situation = (typeof situations)[number];
