import { createSlots } from "./inbox-slots.js";
import { consumerTable, inboxTable } from "./names.js";

/** Which consumers there are, and what each has taken over. */
export function createInboxMemory(schema: string): string {
  const memory = inboxTable(schema);
  return `
    CREATE TABLE ${consumerTable(schema)} (
      name text PRIMARY KEY,
      number integer NOT NULL UNIQUE,
      retention_ms double precision
    );

    CREATE TABLE ${memory} (
      slot smallint NOT NULL,
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
      received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      processed_at timestamptz,
      PRIMARY KEY (consumer, id, slot)
    ) PARTITION BY LIST (slot);
${createSlots(schema)}
`;
}
