import { createHash } from "node:crypto";
import { checkOptions } from "../../options.js";
import { databaseRule, nowSql, outboxNumber, type Tables, tablesIn } from "./names.js";

/*
 * The tables, in the SQL that MySQL, MariaDB and TiDB have in common. Times are microseconds since 1970, so that no
 * session's time zone applies to them. Every statement of the store names its index (`FORCE INDEX`), so that no plan
 * depends on statistics.
 */

/** The version of the schema that this code needs. */
export const schemaVersion = 1;

/** How many rows `postbox_lock` has. */
export const lockCount = 16_384;

/**
 * Texts are compared byte by byte, and without ignoring spaces at their end. MySQL and MariaDB have different names for
 * that. Each ignores the comment of the other.
 */
const options =
  "ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 " +
  "COLLATE=/*!80000 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */";

const message = `id VARCHAR(255) NOT NULL CHECK (id <> ''),
  source VARCHAR(1024) NOT NULL CHECK (source <> ''),
  type VARCHAR(255) NOT NULL CHECK (type <> ''),
  subject VARCHAR(1024),
  time TEXT,
  content_type VARCHAR(255) NOT NULL,
  data_schema VARCHAR(1024),
  topic VARCHAR(255) NOT NULL CHECK (topic <> ''),
  \`key\` VARCHAR(1024) CHECK (\`key\` >= ' '),
  extensions MEDIUMTEXT NOT NULL CHECK (JSON_TYPE(extensions) = 'OBJECT'),
  headers MEDIUMTEXT NOT NULL CHECK (JSON_TYPE(headers) = 'OBJECT'),
  created_at BIGINT NOT NULL`;

const place = `box INT UNSIGNED NOT NULL,
  lane TINYINT UNSIGNED NOT NULL CHECK (lane < 64),
  position BIGINT NOT NULL`;

const progress = `attempts INT NOT NULL,
  crashes INT NOT NULL DEFAULT 0,
  last_error MEDIUMTEXT,
  -- The last failed attempts: an array of objects with attempt, at and error.
  failures MEDIUMTEXT,
  updated_at BIGINT NOT NULL`;

/** Its size decides how many rows a read returns. */
const data = `data LONGBLOB NOT NULL,
  bytes BIGINT AS (LENGTH(data) + 512) STORED`;

function statementsFor(t: Tables): readonly string[] {
  return [
    `CREATE TABLE IF NOT EXISTS ${t.version} (
  version INT NOT NULL PRIMARY KEY,
  applied_at BIGINT NOT NULL
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.box} (
  number INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(1024) NOT NULL UNIQUE,
  paused_at BIGINT,
  -- In an inbox: ids of messages older than this may have been deleted.
  forgotten_until BIGINT NOT NULL DEFAULT 0,
  cleaner VARCHAR(64),
  cleaner_until BIGINT
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.lane} (
  box INT UNSIGNED NOT NULL,
  lane TINYINT UNSIGNED NOT NULL,
  epoch BIGINT NOT NULL DEFAULT 0,
  owner VARCHAR(255),
  clean BOOLEAN NOT NULL DEFAULT TRUE,
  PRIMARY KEY (box, lane)
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.member} (
  box INT UNSIGNED NOT NULL,
  owner VARCHAR(255) NOT NULL,
  relay_order VARCHAR(16) NOT NULL,
  beat BIGINT NOT NULL,
  lease_ms DOUBLE NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (box, owner)
) ${options}`,
    // A transaction counts its appends here before it draws a position. A reader that finds another count in a dirty
    // read than in a committed one knows that the transaction of that connection is in progress.
    `CREATE TABLE IF NOT EXISTS ${t.writer} (
  connection BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  appends BIGINT NOT NULL,
  at BIGINT NOT NULL
) ${options}`,
    // Locks by name: the hash of a name picks a row. They exist from the beginning, because to lock a row that is
    // missing locks the gap where others insert.
    `CREATE TABLE IF NOT EXISTS ${t.lock} (
  number INT UNSIGNED NOT NULL PRIMARY KEY
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.pending} (
  ${place} AUTO_INCREMENT,
  ${message},
  attempts INT NOT NULL DEFAULT 0,
  crashes INT NOT NULL DEFAULT 0,
  last_error MEDIUMTEXT,
  failures MEDIUMTEXT,
  ${data},
  PRIMARY KEY (box, lane, position),
  KEY by_position (position),
  KEY id (box, id)
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.waiting} (
  ${place},
  ${message},
  ${progress},
  -- The hold that it waits under.
  hold VARBINARY(1026) NOT NULL,
  -- How often an operator has put it back under a hold.
  turn INT NOT NULL DEFAULT 0,
  ${data},
  PRIMARY KEY (box, lane, position),
  KEY hold (box, lane, hold, position),
  KEY by_position (box, position),
  KEY id (box, id)
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.hold} (
  box INT UNSIGNED NOT NULL,
  lane TINYINT UNSIGNED NOT NULL,
  -- A key; for a message that waits alone, U+0001 and its id.
  name VARBINARY(1026) NOT NULL,
  -- NULL: until an operator releases it.
  due_at BIGINT,
  PRIMARY KEY (box, lane, name),
  KEY due (box, lane, due_at),
  KEY box_due (box, due_at)
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.scheduled} (
  ${place} AUTO_INCREMENT,
  ${message},
  due_at BIGINT NOT NULL,
  schedule_key VARCHAR(1024),
  -- The type, NUL, and the schedule key.
  schedule_name VARBINARY(1281),
  ${data},
  PRIMARY KEY (box, due_at, position),
  -- Not unique: an insert beside a deleted row of the same name would lock the gap around it. A lock of the name is
  -- held instead.
  KEY schedule_name (box, schedule_name),
  KEY by_position (position),
  KEY box_position (box, position),
  KEY id (box, id)
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.parked} (
  ${place},
  ${message},
  ${progress},
  turn INT NOT NULL DEFAULT 0,
  -- Whether it holds its key.
  holds BOOLEAN NOT NULL DEFAULT FALSE,
  ${data},
  PRIMARY KEY (box, lane, position),
  KEY holder (box, lane, holds),
  KEY by_position (box, position),
  KEY id (box, id)
) ${options}`,
    // A failover may assign a position again, so it is not unique here.
    `CREATE TABLE IF NOT EXISTS ${t.done} (
  number BIGINT NOT NULL AUTO_INCREMENT,
  ${place},
  ${message},
  ${progress},
  ${data},
  PRIMARY KEY (number),
  KEY by_position (box, position),
  KEY id (box, id),
  KEY sent (box, updated_at)
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.handled} (
  number BIGINT NOT NULL AUTO_INCREMENT,
  box INT UNSIGNED NOT NULL,
  -- The id that the consumer remembers; a very long one by its hash. The message's own id is in the column id.
  remembered VARBINARY(768) NOT NULL,
  hash VARCHAR(255),
  -- The later of arrival and the message's own time: from then on, the retention counts.
  since BIGINT NOT NULL,
  handled_at BIGINT,
  ${message},
  -- Empty unless the inbox stores payloads.
  data LONGBLOB NOT NULL,
  PRIMARY KEY (box, remembered),
  KEY number (number),
  KEY box_number (box, number),
  KEY since (box, since),
  KEY id (box, id)
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.schedule} (
  name VARBINARY(768) NOT NULL PRIMARY KEY,
  id VARCHAR(64) NOT NULL,
  last_tick BIGINT NOT NULL
) ${options}`,
    `CREATE TABLE IF NOT EXISTS ${t.audit} (
  number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  box INT UNSIGNED NOT NULL,
  at BIGINT NOT NULL,
  action VARCHAR(16) NOT NULL,
  actor MEDIUMTEXT NOT NULL,
  reason MEDIUMTEXT,
  selection MEDIUMTEXT,
  count INT NOT NULL,
  ids MEDIUMTEXT NOT NULL,
  -- Of a confirmed change: a hash of its token, and the position that it has reached.
  confirm CHAR(64),
  reached BIGINT,
  KEY box_number (box, number),
  KEY drops (box, action, at),
  KEY confirm (confirm, reached)
) ${options}`,
    `INSERT IGNORE INTO ${t.lock} (number)
SELECT a.n + 16 * b.n + 256 * c.n + 4096 * d.n FROM (${digits(16)}) a, (${digits(16)}) b, (${digits(16)}) c, (${digits(4)}) d`,
    `INSERT IGNORE INTO ${t.box} (number, name) VALUES (${outboxNumber}, 'outbox')`,
    `INSERT IGNORE INTO ${t.lane} (box, lane)
SELECT ${outboxNumber}, a.n + 16 * b.n FROM (${digits(16)}) a, (${digits(4)}) b`,
    // Last: a schema without it is not complete.
    `INSERT IGNORE INTO ${t.version} (version, applied_at) VALUES (${schemaVersion}, ${nowSql})`,
  ];
}

function digits(count: number): string {
  return Array.from({ length: count }, (_, n) => `SELECT ${n} AS n`).join(" UNION ALL ");
}

/** Options of `migrationSql`. */
export interface MigrationOptions {
  /** The database of the tables, which must exist. Defaults to that of the session. */
  readonly database?: string;
}

/**
 * The SQL that creates or updates the tables, for your own migrations. MySQL commits after each statement of a schema,
 * so every statement may run again, and a migration that was interrupted is completed by the next one.
 *
 * @example
 * ```ts
 * writeFileSync("migrations/postbox.sql", migrationSql());
 * ```
 */
export function migrationSql(given: MigrationOptions = {}): string {
  checkOptions("migrationSql", given, { database: databaseRule });
  return `${migrationSteps(given.database).join(";\n\n")};\n`;
}

/** The statements of `migrationSql`, in order. */
export function migrationSteps(database: string | undefined): readonly string[] {
  return statementsFor(tablesIn(database));
}

/**
 * The bytes of a text as an index holds them. A longer text is replaced by its hash, behind a byte that no text has.
 */
export function indexed(text: string): Buffer {
  const bytes = Buffer.from(text, "utf8");
  if (bytes.byteLength <= 768) return bytes;
  return Buffer.concat([Buffer.of(0xff), createHash("sha256").update(bytes).digest()]);
}
