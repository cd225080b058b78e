import {
  dueFunction,
  lateFunction,
  leaveFunction,
  ownFunction,
  promoteFunction,
  readFunction,
  releaseFunction,
  renewFunction,
  type Tables,
} from "./box-sql.js";
import { tablesNamed } from "./names.js";
import type { PlannedFunction } from "./planned-function.js";
import { createCancelFunction } from "./schedule-sql.js";
import { settleFunction, suspectFunction } from "./settle-sql.js";

/** Every statement of a relay on the tables of a box. */
export function boxFunctions(t: Tables) {
  return {
    renew: renewFunction(t),
    own: ownFunction(t),
    release: releaseFunction(t),
    leave: leaveFunction(t),
    read: readFunction(t),
    due: dueFunction(t),
    late: lateFunction(t),
    promote: promoteFunction(t),
    suspect: suspectFunction(t),
    settle: settleFunction(t),
  } satisfies Record<string, PlannedFunction>;
}

export function createBoxFunctions(schema: string, box: "outbox" | "inbox"): string {
  const t = tablesNamed(schema, box);
  const created = Object.values(boxFunctions(t)).map(({ create }) => create);
  return [...created, createCancelFunction(t)].join("");
}

/**
 * Identifies the server and its timeline. If the answer changes, commits may have been lost, and positions and epochs
 * may have been assigned again. It is determined once per session, because a session stays with its server. If the role
 * may not read these facts, the server's start time stands in for them.
 */
export function createServerFunction(schema: string): string {
  return `
    CREATE FUNCTION ${tablesNamed(schema, "outbox").server}() RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
    DECLARE
      answer text := current_setting('postbox.server', true);
    BEGIN
      IF answer <> '' THEN
        RETURN answer;
      END IF;
      BEGIN
        SELECT c.system_identifier || ' timeline ' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
        INTO STRICT answer FROM pg_control_system() AS c;
      EXCEPTION WHEN OTHERS THEN
        answer := 'started ' || extract(epoch FROM pg_postmaster_start_time());
      END;
      PERFORM set_config('postbox.server', answer, false);
      RETURN answer;
    END
    $function$;
`;
}
