import { inboxTable } from "./names.js";

/**
 * The messages that each consumer has accepted. Only the unique index over (consumer, id) decides what is a duplicate.
 * A key that also held a time, as partitioning by time requires, would accept two copies of an id.
 *
 * `since` is the later of arrival and the message's own time. Retention counts from there.
 */
export function createInboxMemory(schema: string): string {
  const memory = inboxTable(schema);
  return `
    -- A row that is marked as processed later finds room beside itself. Retention deletes a few rows at a time, for ever:
    -- with the usual share of a large table, vacuum would come too late for the index that retention reads.
    CREATE TABLE ${memory} (
      consumer text NOT NULL,
      id text NOT NULL,
      type text NOT NULL,
      source text NOT NULL,
      topic text NOT NULL,
      event_version text,
      partition text,
      "offset" text,
      correlation_id text,
      handler text,
      hash text,
      data bytea,
      since timestamptz NOT NULL,
      received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      processed_at timestamptz,
      PRIMARY KEY (consumer, id)
    ) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
    -- An expression, so that no statistics make it serve a look-up by consumer and id.
    CREATE INDEX ON ${memory} ((consumer || ''), since);
`;
}
