/**
 * Places where a crash is interesting, each named after what has just happened. Crash tests go through the whole list,
 * so a new entry is tested from the start.
 */
export const failpoints = [
  "outbox.appended",
  "relay.owned",
  "relay.read",
  "relay.sent",
  "relay.settled",
  "relay.released",
  "router.received",
  "transaction.begun",
  "inbox.kept",
  "inbox.remembered",
  "inbox.finished",
  "handler.returned",
  "outputs.appended",
  "transaction.committed",
  "router.acked",
] as const;

/** The name of a place in the code at which a test can stop a process. */
export type Failpoint = (typeof failpoints)[number];
