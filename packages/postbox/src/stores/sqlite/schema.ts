import { PostboxError } from "../../errors.js";
import type { Connection } from "./sqlite-database.js";

/*
 * The tables, in SQLite's own words. Every statement of the store names its index (`INDEXED BY`), so that no plan
 * depends on statistics. Times are whole milliseconds since 1970.
 */

/** The version of the schema that this code needs. */
const schemaVersion = 1;

const schema = `
CREATE TABLE IF NOT EXISTS postbox_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT;

CREATE TABLE IF NOT EXISTS postbox_box (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  -- Grows with each transaction that brings a message to another status.
  revision INTEGER NOT NULL DEFAULT 0,
  paused_at INTEGER,
  -- The relays that share its lanes, and the owner and epoch of each lane.
  owners TEXT NOT NULL DEFAULT '{"lanes":[],"members":[]}' CHECK (json_valid(owners)),
  -- In an inbox: ids of messages older than this may have been deleted.
  forgotten_until INTEGER NOT NULL DEFAULT 0,
  cleaner TEXT,
  cleaner_until INTEGER
) STRICT;

CREATE TABLE IF NOT EXISTS postbox_message (
  -- AUTOINCREMENT: a position is never used again, even after the last row was deleted.
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  box INTEGER NOT NULL REFERENCES postbox_box,
  status TEXT NOT NULL CHECK (status IN ('pending', 'waiting', 'scheduled', 'parked', 'done')),
  lane INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 63),
  id TEXT NOT NULL CHECK (id <> ''),
  source TEXT NOT NULL CHECK (source <> ''),
  type TEXT NOT NULL CHECK (type <> ''),
  subject TEXT,
  time TEXT,
  content_type TEXT NOT NULL,
  data_schema TEXT,
  topic TEXT NOT NULL CHECK (topic <> ''),
  key TEXT CHECK (key >= ' '),
  correlation_id TEXT AS (extensions ->> 'correlationid') VIRTUAL,
  extensions TEXT NOT NULL DEFAULT '{}' CHECK (json_type(extensions) = 'object'),
  headers TEXT NOT NULL DEFAULT '{}' CHECK (json_type(headers) = 'object'),
  attempts INTEGER NOT NULL DEFAULT 0,
  crashes INTEGER NOT NULL DEFAULT 0,
  -- While it is waiting: the hold that it waits under.
  hold TEXT,
  -- How often an operator has put it back under a hold.
  turn INTEGER NOT NULL DEFAULT 0,
  -- While it is parked: whether it holds its key.
  holds INTEGER,
  last_error TEXT,
  failures TEXT NOT NULL DEFAULT '[]' CHECK (json_type(failures) = 'array'),
  -- While it is scheduled.
  due_at INTEGER,
  schedule_key TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  -- Last: SQLite reads a row from its beginning.
  data BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS postbox_pending ON postbox_message (box, lane, position) WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS postbox_waiting ON postbox_message (box, lane, hold, position) WHERE status = 'waiting';
CREATE INDEX IF NOT EXISTS postbox_due ON postbox_message (box, due_at, position) WHERE status = 'scheduled';
CREATE UNIQUE INDEX IF NOT EXISTS postbox_schedule_key ON postbox_message (box, type, schedule_key)
  WHERE status = 'scheduled' AND schedule_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS postbox_status ON postbox_message (box, status, position);
CREATE INDEX IF NOT EXISTS postbox_id ON postbox_message (box, id, status, position);
CREATE INDEX IF NOT EXISTS postbox_holder ON postbox_message (box, key) WHERE status = 'parked' AND holds = 1;
CREATE INDEX IF NOT EXISTS postbox_sent ON postbox_message (box, updated_at) WHERE status = 'done';

CREATE TABLE IF NOT EXISTS postbox_hold (
  box INTEGER NOT NULL REFERENCES postbox_box,
  lane INTEGER NOT NULL,
  -- A key; for a message that waits alone, U+0001 and its id.
  name TEXT NOT NULL,
  -- NULL: until an operator releases it.
  due_at INTEGER,
  PRIMARY KEY (box, lane, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS postbox_hold_due ON postbox_hold (box, lane, due_at);
CREATE INDEX IF NOT EXISTS postbox_box_hold_due ON postbox_hold (box, due_at);

CREATE TABLE IF NOT EXISTS postbox_handled (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  box INTEGER NOT NULL REFERENCES postbox_box,
  -- The id that the consumer remembers, and the message's own.
  remembered_id TEXT NOT NULL,
  id TEXT NOT NULL,
  hash TEXT,
  -- The later of arrival and the message's own time: from then on, the retention counts.
  since INTEGER NOT NULL,
  received_at INTEGER NOT NULL,
  handled_at INTEGER,
  source TEXT NOT NULL,
  type TEXT NOT NULL,
  subject TEXT,
  time TEXT,
  content_type TEXT NOT NULL,
  data_schema TEXT,
  topic TEXT NOT NULL,
  key TEXT,
  correlation_id TEXT AS (extensions ->> 'correlationid') VIRTUAL,
  extensions TEXT NOT NULL,
  headers TEXT NOT NULL,
  -- Empty unless the inbox stores payloads.
  data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS postbox_remembered ON postbox_handled (box, remembered_id);
CREATE INDEX IF NOT EXISTS postbox_since ON postbox_handled (box, since);
CREATE INDEX IF NOT EXISTS postbox_handled_number ON postbox_handled (box, number) WHERE handled_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS postbox_schedule (
  name TEXT PRIMARY KEY,
  id TEXT NOT NULL,
  last_tick INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS postbox_audit (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  box INTEGER NOT NULL REFERENCES postbox_box,
  at INTEGER NOT NULL,
  action TEXT NOT NULL,
  actor TEXT NOT NULL,
  reason TEXT,
  selection TEXT,
  count INTEGER NOT NULL,
  ids TEXT NOT NULL,
  -- Of a confirmed change: its token, and the position that it has reached.
  confirm TEXT,
  reached INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS postbox_audit_box ON postbox_audit (box, number);
CREATE INDEX IF NOT EXISTS postbox_audit_drop ON postbox_audit (box, at) WHERE action = 'drop';
CREATE INDEX IF NOT EXISTS postbox_audit_confirm ON postbox_audit (confirm, reached) WHERE confirm IS NOT NULL;

INSERT OR IGNORE INTO postbox_box (number, name) VALUES (0, 'outbox');
INSERT OR IGNORE INTO postbox_version (version, applied_at) VALUES (1, unixepoch() * 1000);
`;

/**
 * The SQL that creates or updates the tables, for your own migrations. Run it in one transaction. Each statement may
 * run again.
 *
 * @example
 * ```ts
 * writeFileSync("migrations/postbox.sql", migrationSql());
 * ```
 */
export function migrationSql(): string {
  return schema.trimStart();
}

/** Throws unless the file has the schema that this code needs. */
export function requireSchema(connection: Connection, file: string): void {
  const fault = schemaFault(connection, file);
  if (fault !== undefined) throw new PostboxError(fault.code, fault.text);
}

export function schemaFault(connection: Connection, file: string) {
  const table = connection.first("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'postbox_version'");
  const migrate = "call store.migrate() once, or run migrationSql()";
  if (table === undefined) {
    return { code: "schema-missing", text: `${file} has no tables of postbox; ${migrate}` } as const;
  }
  const found = connection.first<{ readonly version: number | null }>(
    "SELECT max(version) AS version FROM postbox_version",
  );
  const version = Number(found?.version ?? 0);
  if (version === schemaVersion) return undefined;
  if (version < schemaVersion) {
    const text = `the tables in ${file} have version ${version}, this postbox needs ${schemaVersion}; ${migrate}`;
    return { code: "schema-outdated", text, version, needed: schemaVersion } as const;
  }
  const text = `the tables in ${file} are newer than version ${schemaVersion}, which this postbox knows; update it`;
  return { code: "schema-newer", text, version, needed: schemaVersion } as const;
}
