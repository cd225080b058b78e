import { laneCount } from "../../internal/lane.js";
import { attributeBytes } from "../../message/attributes.js";
import { reservedHeaders } from "../../message/reserved-headers.js";
import { outboxNumber, tablesNamed } from "./names.js";
import { scheduleFrom } from "./schedule-sql.js";

/*
 * Publishing in SQL, for every language other than TypeScript: `publish`, `publish_all` and `cancel` in the store's
 * schema. They append and cancel exactly what the outbox would, and refuse what it would refuse. The other functions
 * are internal.
 *
 * They do not depend on the caller's session: not on its `search_path`, not on how it reads backslashes (hence E''),
 * and not on the collation of arguments (hence COLLATE "C", whose letters and digits are those of ASCII, as in
 * TypeScript).
 */

/** The SQLSTATE of `publish` and `publish_all` for an invalid message. `column` has the path of the fault. */
export const messageInvalidState = "PBX02";

/** Their SQLSTATE for a message larger than 1 MiB. */
export const messageTooLargeState = "PBX03";

const maxMessageBytes = 1024 * 1024;

/** A setting with the default source of messages. */
const sourceSetting = "postbox.source";

const messageFields = [
  "id",
  "source",
  "type",
  "subject",
  "event_time",
  "content_type",
  "data_schema",
  "topic",
  "key",
  "extensions",
  "headers",
  "deliver_at",
  "schedule_key",
] as const;

const columns = [
  "id",
  "source",
  "type",
  "subject",
  "time",
  "content_type",
  "data_schema",
  "event_version",
  "topic",
  "key",
  "extensions",
  "headers",
  "data",
].join(", ");

const pinned = "SET search_path = pg_catalog, pg_temp AS $function$";
const body = `LANGUAGE plpgsql ${pinned}`;
const end = "$function$;";

/**
 * The public functions run with the rights of their owner, so that a role that may only publish needs no right on a
 * table: with INSERT it could choose a position and block every relay. They run nothing that the caller has created.
 * The search_path is pinned, every name is qualified, and arguments are values.
 */
const publicBody = `LANGUAGE plpgsql SECURITY DEFINER ${pinned}`;

export function createPublishFunctions(schema: string): string {
  const s = `"${schema}"`;
  return [
    refuse(s),
    checkText(s),
    checkTime(s),
    isJson(s),
    complete(s),
    read(s),
    append(s, schema),
    publishBytes(s),
    publishText(s),
    publishJson(s, "json"),
    publishJson(s, "jsonb"),
    publishAll(s),
    cancel(s),
    revoke(s),
  ].join("\n");
}

/**
 * By default, PUBLIC may execute every new function. This is revoked, so that a role that may only read the tables
 * cannot publish. The internal functions run with the rights of their caller.
 */
function revoke(s: string): string {
  const overloads = ["text", "bytea", "json", "jsonb"].map(
    (data) => `${s}.publish(text, ${data}, ${optionTypes.join(", ")})`,
  );
  return `
    REVOKE EXECUTE ON FUNCTION ${overloads.join(", ")}, ${s}.publish_all(jsonb, boolean), ${s}.cancel(text, text) FROM PUBLIC;`;
}

function refuse(s: string): string {
  return `
    CREATE FUNCTION ${s}.publish_refuse(path text, why text, advice text) RETURNS void ${body}
    BEGIN
      RAISE EXCEPTION USING ERRCODE = '${messageInvalidState}', COLUMN = path,
        MESSAGE = path || ' ' || why, HINT = advice || '.';
    END
    ${end}`;
}

function checkText(s: string): string {
  return String.raw`
    CREATE FUNCTION ${s}.publish_check_text(path text, value text, max_bytes integer) RETURNS void ${body}
    DECLARE
      checked CONSTANT text COLLATE "C" := value;
      bytes CONSTANT integer := octet_length(convert_to(value, 'UTF8'));
    BEGIN
      IF coalesce(bytes, 0) = 0 THEN
        PERFORM ${s}.publish_refuse(path, 'is missing or empty', 'Give a non-empty string');
      ELSIF checked ~ E'[\\u0001-\\u001f\\u007f-\\u009f\\ufdd0-\\ufdef\\ufffe\\uffff]' THEN
        PERFORM ${s}.publish_refuse(path, 'has a control character', 'Remove it');
      ELSIF bytes > max_bytes THEN
        PERFORM ${s}.publish_refuse(path, 'has ' || bytes || ' bytes', max_bytes || ' are allowed');
      END IF;
    END
    ${end}`;
}

/** The times that both the pattern of `attributes.ts` and `Date.parse` accept. For them, every month has 31 days. */
function checkTime(s: string): string {
  return String.raw`
    CREATE FUNCTION ${s}.publish_check_time(path text, value text) RETURNS void ${body}
    DECLARE
      checked CONSTANT text COLLATE "C" := value;
      day CONSTANT text := E'^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])[Tt]';
      clock CONSTANT text := E'(([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?|24:00:00(\\.0+)?)';
      zone CONSTANT text := E'([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)$';
    BEGIN
      IF checked !~ (day || clock || zone) THEN
        PERFORM ${s}.publish_refuse(path, 'is ' || to_json(value)::text, 'Give RFC 3339 text such as 2026-01-31T12:00:00Z');
      END IF;
    END
    ${end}`;
}

function isJson(s: string): string {
  return String.raw`
    CREATE FUNCTION ${s}.publish_is_json(content_type text) RETURNS boolean ${body}
    BEGIN
      RETURN content_type COLLATE "C" ~* E'^\\s*(application/json|text/json|[^;]*\\+json)\\s*(;|$)';
    END
    ${end}`;
}

/**
 * Completes a message with its defaults and its lane, and checks it as `createMessage` does. `due_at` remains only if
 * it is in the future or there is a schedule key. In a fault, `path` precedes the field's name.
 */
function complete(s: string): string {
  return String.raw`
    CREATE FUNCTION ${s}.publish_complete(message ${s}.outbox_scheduled, path text) RETURNS ${s}.outbox_scheduled ${body}
    DECLARE
      event_type CONSTANT text COLLATE "C" := message.type;
      moment CONSTANT timestamptz := clock_timestamp();
      microseconds CONSTANT bigint := extract(epoch FROM moment) * 1000000::numeric;
      milliseconds CONSTANT text := lpad(to_hex(microseconds / 1000), 12, '0');
      content_type text COLLATE "C";
      name text COLLATE "C";
      value jsonb;
      size integer := 0;
    BEGIN
      -- A UUIDv7: 48 bits of milliseconds, then 12 bits of a fraction. Its variant and random bits come from a UUIDv4.
      message.id := coalesce(message.id, left(milliseconds, 8) || '-' || right(milliseconds, 4) || '-'
        || to_hex(28672 + microseconds % 1000 * 4096 / 1000) || substr(gen_random_uuid()::text, 19));
      message.source := coalesce(message.source, nullif(current_setting('${sourceSetting}', true), ''),
        '/' || current_database());
      message.topic := coalesce(message.topic, substring(event_type FROM E'^(.+)\\.[^.]*$'), event_type);
      message.content_type := coalesce(message.content_type, 'application/json');
      message.headers := coalesce(nullif(message.headers, 'null'), '{}');
      message.extensions := coalesce(nullif(message.extensions, 'null'), '{}');
      message.data := coalesce(message.data, '');
      IF message.time IS NULL THEN
        message.time := to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
      ELSE
        PERFORM ${s}.publish_check_time(path || 'event_time', message.time);
      END IF;
      FOR name, value IN VALUES ('headers', message.headers), ('extensions', message.extensions) LOOP
        IF jsonb_typeof(value) <> 'object' THEN
          PERFORM ${s}.publish_refuse(path || name, 'is no JSON object', 'Give names and their values');
        END IF;
      END LOOP;
      -- The name that a key has on the wire.
      value := message.extensions -> 'partitionkey';
      IF jsonb_typeof(value) IN ('object', 'array', 'null') THEN
        PERFORM ${s}.publish_refuse(path || 'extensions.partitionkey', 'is not a scalar', 'Give the key as text');
      ELSIF value IS NOT NULL THEN
        message.key := coalesce(message.key, value #>> '{}');
        message.extensions := message.extensions - 'partitionkey';
      END IF;

      PERFORM ${s}.publish_check_text(path || 'id', message.id, 255);
      PERFORM ${s}.publish_check_text(path || 'source', message.source, 1024);
      PERFORM ${s}.publish_check_text(path || 'type', message.type, 255);
      PERFORM ${s}.publish_check_text(path || 'topic', message.topic, 255);
      IF message.subject IS NOT NULL THEN
        PERFORM ${s}.publish_check_text(path || 'subject', message.subject, 1024);
      END IF;
      IF message.key IS NOT NULL THEN
        PERFORM ${s}.publish_check_text(path || 'key', message.key, 1024);
      END IF;
      IF message.data_schema IS NOT NULL THEN
        PERFORM ${s}.publish_check_text(path || 'data_schema', message.data_schema, 1024);
      END IF;
      PERFORM ${s}.publish_check_text(path || 'content_type', message.content_type, 255);
      content_type := message.content_type;
      IF content_type !~ (E'^[A-Za-z0-9_!#$&^.+-]+/[A-Za-z0-9_!#$&^.+-]+'
        || E'([ \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff]*;[^\\u2028\\u2029]*)?$')
      THEN
        PERFORM ${s}.publish_refuse(path || 'content_type', '''' || content_type || ''' is no media type',
          'Write one such as application/json');
      END IF;

      FOR name, value IN SELECT e.name, e.value FROM jsonb_each(message.extensions) AS e (name, value) LOOP
        IF name IN ('specversion', 'id', 'source', 'type', 'subject', 'time', 'datacontenttype', 'dataschema', 'data',
          'data_base64', 'topic', 'key', 'headers')
        THEN
          PERFORM ${s}.publish_refuse(path || 'extensions.' || name, 'is a name of the envelope itself',
            'Choose another name');
        ELSIF name !~ '^[a-z0-9]{1,20}$' THEN
          PERFORM ${s}.publish_refuse(path || 'extensions.' || name, 'is no extension name',
            'Use 1 to 20 lower-case letters and digits, or put it into headers');
        ELSIF jsonb_typeof(value) = 'string' THEN
          PERFORM ${s}.publish_check_text(path || 'extensions.' || name, value #>> '{}', 8192);
          IF name = 'expirytime' THEN
            PERFORM ${s}.publish_check_time(path || 'extensions.' || name, value #>> '{}');
          END IF;
        ELSIF jsonb_typeof(value) = 'number' THEN
          IF value::numeric <> trunc(value::numeric) OR value::numeric NOT BETWEEN -2147483648 AND 2147483647 THEN
            PERFORM ${s}.publish_refuse(path || 'extensions.' || name, 'is ' || value::text,
              'A number must be whole and fit into 32 bits; write others as text');
          END IF;
          -- In the canonical form of JSON numbers, without a zero fraction.
          message.extensions := jsonb_set(message.extensions, ARRAY[name], to_jsonb(value::numeric::integer));
        ELSIF jsonb_typeof(value) <> 'boolean' THEN
          PERFORM ${s}.publish_refuse(path || 'extensions.' || name, 'is not a scalar',
            'Give text, a whole number or a flag');
        END IF;
      END LOOP;
      FOR name, value IN SELECT h.name, h.value FROM jsonb_each(message.headers) AS h (name, value) LOOP
        IF name !~ '^[A-Za-z0-9._-]{1,128}$' THEN
          PERFORM ${s}.publish_refuse(path || 'headers.' || name, 'is no header name',
            'Use up to 128 letters, digits and . _ -');
        ELSIF name ~* '${reservedHeaders}' THEN
          PERFORM ${s}.publish_refuse(path || 'headers.' || name, 'is a name that brokers use themselves',
            'Choose another name');
        ELSIF jsonb_typeof(value) <> 'string' THEN
          PERFORM ${s}.publish_refuse(path || 'headers.' || name, 'is not text', 'Give a string');
        ELSIF value <> '""' THEN
          PERFORM ${s}.publish_check_text(path || 'headers.' || name, value #>> '{}', 8192);
        END IF;
      END LOOP;
      IF NOT (isfinite(message.due_at) AND message.due_at < '10000-01-01 00:00:00+00'::timestamptz) THEN
        PERFORM ${s}.publish_refuse(path || 'deliver_at', 'is ' || message.due_at::text, 'Give a moment before the year 10000');
      END IF;
      IF message.schedule_key IS NOT NULL THEN
        PERFORM ${s}.publish_check_text(path || 'schedule_key', message.schedule_key, ${attributeBytes.scheduleKey});
        IF message.due_at IS NULL THEN
          PERFORM ${s}.publish_refuse(path || 'schedule_key', 'is given without deliver_at',
            'Give deliver_at, or leave schedule_key out');
        END IF;
      END IF;

      SELECT octet_length(message.data) + sum(octet_length(convert_to(part, 'UTF8'))) INTO size
      FROM (
        SELECT unnest(ARRAY[message.id, message.source, message.type, message.topic, message.content_type,
          message.subject, message.key, message.time, message.data_schema])
        UNION ALL SELECT e.name || e.value FROM jsonb_each_text(message.extensions) AS e (name, value)
        UNION ALL SELECT h.name || h.value FROM jsonb_each_text(message.headers) AS h (name, value)
      ) AS parts (part);
      IF size > ${maxMessageBytes} THEN
        RAISE EXCEPTION USING ERRCODE = '${messageTooLargeState}', COLUMN = path || 'data',
          MESSAGE = format('message %s of type %s has %s bytes, ${maxMessageBytes} are allowed',
            message.id, message.type, size),
          HINT = 'Store the data elsewhere and send a reference.';
      END IF;

      message.lane := get_byte(sha256(convert_to(coalesce(message.key, message.id), 'UTF8')), 0) % ${laneCount};
      message.event_version := message.extensions ->> 'dataversion';
      IF message.due_at <= moment AND message.schedule_key IS NULL THEN
        message.due_at := NULL;
      END IF;
      RETURN message;
    END
    ${end}`;
}

/** Reads an element of `publish_all` as a message that is not completed yet. */
function read(s: string): string {
  const known = [...messageFields, "data", "data_base64"];
  return `
    CREATE FUNCTION ${s}.publish_read(element jsonb, path text) RETURNS ${s}.outbox_scheduled ${body}
    DECLARE
      message ${s}.outbox_scheduled;
      content_type CONSTANT text COLLATE "C" := coalesce(element ->> 'content_type', 'application/json');
      name text COLLATE "C";
      kind text;
    BEGIN
      IF jsonb_typeof(element) <> 'object' THEN
        PERFORM ${s}.publish_refuse(rtrim(path, '.'), 'is no JSON object', 'Give one with the fields of a message');
      END IF;
      FOR name, kind IN SELECT e.name, jsonb_typeof(e.value) FROM jsonb_each(element) AS e (name, value) LOOP
        IF name NOT IN (${known.map((field) => `'${field}'`).join(", ")}) THEN
          PERFORM ${s}.publish_refuse(path || name, 'is no field of a message', 'There are ${known.join(", ")}');
        ELSIF kind NOT IN ('string', 'null') AND name NOT IN ('data', 'headers', 'extensions') THEN
          PERFORM ${s}.publish_refuse(path || name, 'is a ' || kind, 'Give a string');
        END IF;
      END LOOP;
      message.id := element ->> 'id';
      message.source := element ->> 'source';
      message.type := element ->> 'type';
      message.subject := element ->> 'subject';
      message.time := element ->> 'event_time';
      message.content_type := element ->> 'content_type';
      message.data_schema := element ->> 'data_schema';
      message.topic := element ->> 'topic';
      message.key := element ->> 'key';
      message.extensions := element -> 'extensions';
      message.headers := element -> 'headers';
      message.schedule_key := element ->> 'schedule_key';
      IF element ->> 'deliver_at' IS NOT NULL THEN
        PERFORM ${s}.publish_check_time(path || 'deliver_at', element ->> 'deliver_at');
        BEGIN
          message.due_at := (element ->> 'deliver_at')::timestamptz;
        EXCEPTION WHEN data_exception THEN
          PERFORM ${s}.publish_refuse(path || 'deliver_at', 'is ' || (element -> 'deliver_at')::text,
            'Give a day that the calendar has');
        END;
      END IF;
      IF element ->> 'data_base64' IS NOT NULL THEN
        IF element -> 'data' IS NOT NULL THEN
          PERFORM ${s}.publish_refuse(path || 'data_base64', 'stands beside data', 'Give one of them');
        END IF;
        BEGIN
          message.data := decode(element ->> 'data_base64', 'base64');
        EXCEPTION WHEN data_exception THEN
          PERFORM ${s}.publish_refuse(path || 'data_base64', 'is not base64', 'Encode the bytes as base64');
        END;
      ELSIF jsonb_typeof(element -> 'data') = 'string' AND NOT ${s}.publish_is_json(content_type) THEN
        message.data := convert_to(element ->> 'data', 'UTF8');
      ELSE
        message.data := convert_to((element -> 'data')::text, 'UTF8');
      END IF;
      RETURN message;
    END
    ${end}`;
}

/**
 * The only function that writes. As in `write-sql.ts`, the transaction gets its number before any row gets its
 * position. The locks are those of `key-lock.ts`, and also come first. In a valid key, only quotes and backslashes need
 * escaping. Scheduled messages take no locks, because they block nothing.
 */
function append(s: string, schema: string): string {
  return `
    CREATE FUNCTION ${s}.publish_append(messages ${s}.outbox_scheduled[], strict_key_order boolean) RETURNS void ${body}
    BEGIN
      PERFORM pg_current_xact_id();
      IF strict_key_order THEN
        PERFORM pg_advisory_xact_lock(locks.number)
        FROM (
          SELECT DISTINCT ('x' || left(encode(sha256(convert_to(
            '["${schema}","outbox",' || to_json(m.key)::text || ']', 'UTF8')), 'hex'), 16))::bit(64)::bigint AS number
          FROM unnest(messages) AS m WHERE m.key IS NOT NULL AND m.due_at IS NULL
          ORDER BY number
        ) AS locks;
      END IF;
      WITH later AS (${scheduleFrom(
        tablesNamed(schema, "outbox"),
        outboxNumber,
        "SELECT m.*, m.ordinality AS place FROM unnest(messages) WITH ORDINALITY AS m WHERE m.due_at IS NOT NULL",
      )}
      )
      INSERT INTO ${s}.outbox_pending (box, lane, ${columns})
      SELECT ${outboxNumber}, lane, ${columns}
      FROM unnest(messages) WITH ORDINALITY WHERE due_at IS NULL ORDER BY ordinality;
    END
    ${end}`;
}

/** The parameters after the data, the same in all overloads. */
const options = [
  "key text DEFAULT NULL",
  "topic text DEFAULT NULL",
  "id text DEFAULT NULL",
  "source text DEFAULT NULL",
  "subject text DEFAULT NULL",
  "event_time text DEFAULT NULL",
  "content_type text DEFAULT NULL",
  "data_schema text DEFAULT NULL",
  "headers jsonb DEFAULT NULL",
  "extensions jsonb DEFAULT NULL",
  "deliver_at timestamptz DEFAULT NULL",
  "schedule_key text DEFAULT NULL",
  "strict_key_order boolean DEFAULT false",
];

const optionNames = options.map((option) => option.slice(0, option.indexOf(" "))).join(", ");
const optionTypes = options.map((option) => option.split(" ")[1]);

/** A literal without a type resolves to the overload that takes text. Only that one can be called without data. */
function publishHead(s: string, data: string): string {
  return `CREATE FUNCTION ${s}.publish(type text, data ${data}, ${options.join(", ")}) RETURNS text ${publicBody}`;
}

function publishBytes(s: string): string {
  return `
    ${publishHead(s, "bytea")}
    DECLARE
      message ${s}.outbox_scheduled;
    BEGIN
      message.id := id;
      message.source := source;
      message.type := type;
      message.subject := subject;
      message.time := event_time;
      message.content_type := content_type;
      message.data_schema := data_schema;
      message.topic := topic;
      message.key := key;
      message.extensions := extensions;
      message.headers := headers;
      message.data := data;
      message.due_at := deliver_at;
      message.schedule_key := schedule_key;
      message := ${s}.publish_complete(message, '');
      PERFORM ${s}.publish_append(ARRAY[message], strict_key_order);
      RETURN message.id;
    END
    ${end}`;
}

function publishText(s: string): string {
  return `
    ${publishHead(s, "text DEFAULT NULL")}
    BEGIN
      IF data <> '' AND ${s}.publish_is_json(coalesce(content_type, 'application/json')) THEN
        BEGIN
          PERFORM data::json;
        EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
          PERFORM ${s}.publish_refuse('data', 'is no JSON: ' || SQLERRM,
            'Give JSON, or the content_type that the data has');
        END;
      END IF;
      RETURN ${s}.publish(type, convert_to(data, 'UTF8'), ${optionNames});
    END
    ${end}`;
}

function publishJson(s: string, json: "json" | "jsonb"): string {
  return `
    ${publishHead(s, json)}
    BEGIN
      RETURN ${s}.publish(type, convert_to(data::text, 'UTF8'), ${optionNames});
    END
    ${end}`;
}

function publishAll(s: string): string {
  return `
    CREATE FUNCTION ${s}.publish_all(messages jsonb, strict_key_order boolean DEFAULT false) RETURNS SETOF text ${publicBody}
    DECLARE
      completed ${s}.outbox_scheduled[];
    BEGIN
      IF coalesce(jsonb_typeof(messages), 'null') <> 'array' THEN
        PERFORM ${s}.publish_refuse('messages', 'is no JSON array', 'Give one with an object for each message');
      END IF;
      SELECT array_agg(${s}.publish_complete(${s}.publish_read(e.element, e.path), e.path) ORDER BY e.place) INTO completed
      FROM (
        SELECT element, place, 'messages[' || (place - 1) || '].' AS path
        FROM jsonb_array_elements(messages) WITH ORDINALITY AS m (element, place)
      ) AS e;
      PERFORM ${s}.publish_append(completed, strict_key_order);
      RETURN QUERY SELECT m.id FROM unnest(completed) WITH ORDINALITY AS m ORDER BY m.ordinality;
    END
    ${end}`;
}

/** See `createCancelFunction`. */
function cancel(s: string): string {
  return `
    CREATE FUNCTION ${s}.cancel(type text, schedule_key text) RETURNS boolean ${publicBody}
    DECLARE
      -- The index requires the collation of the columns, whatever collation the arguments have.
      wanted_type CONSTANT text COLLATE "default" := type;
      wanted_key CONSTANT text COLLATE "default" := schedule_key;
    BEGIN
      PERFORM ${s}.publish_check_text('type', wanted_type, ${attributeBytes.type});
      PERFORM ${s}.publish_check_text('schedule_key', wanted_key, ${attributeBytes.scheduleKey});
      PERFORM FROM ${s}.outbox_cancel(${outboxNumber}, wanted_type, wanted_key);
      RETURN FOUND;
    END
    ${end}`;
}
