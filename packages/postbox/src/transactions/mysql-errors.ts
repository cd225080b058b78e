/** Where an error may carry a number of MySQL. Prisma's adapters have it in `meta`. */
interface Layer {
  readonly errno?: unknown;
  readonly code?: unknown;
  readonly fatal?: unknown;
  readonly cause?: unknown;
  readonly driverError?: unknown;
  readonly meta?: { readonly driverAdapterError?: unknown };
  readonly originalCode?: unknown;
}

/** An id, or a schedule key, that exists already. */
export const duplicateEntry = 1062;
/** A statement that KILL QUERY has ended. MariaDB has a number of its own for a timeout. */
export const interrupted: ReadonlySet<number | undefined> = new Set([1317, 1969]);
const noSuchTable = 1146;
const nowait: ReadonlySet<number | undefined> = new Set([1205, 3572]);

/** Deadlock, lock timeout, a row that has changed since the snapshot (MariaDB), and the write conflicts of TiDB. */
const conflicts: ReadonlySet<number | undefined> = new Set([1213, 1205, 1020, 8002, 8022, 8028, 9007]);

/**
 * Too many connections, a server that shuts down or ends the session, network errors, and a server that takes no
 * writes, as a replica does after a failover.
 */
const lost: ReadonlySet<number | undefined> = new Set([
  1040, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1226, 1290, 1792, 1836, 1927, 2006, 2013,
  2055, 3169, 4031,
]);
/** The codes of mysql2 and of a socket. The latter count only on a connection of the driver, which says `fatal`. */
const lostCodes =
  /^(?:PROTOCOL_CONNECTION_LOST|PROTOCOL_SEQUENCE_TIMEOUT|ER_SOCKET_UNEXPECTED_CLOSE|ER_CMD_CONNECTION_CLOSED)$/;
const socketCodes =
  /^(?:ECONNRESET|ECONNREFUSED|EPIPE|ETIMEDOUT|ENOTFOUND|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ECONNABORTED)$/;
const lostTexts =
  /^(?:Can't (?:add new command when|write in) .*closed state|Connection lost: |This socket has been ended)/;

/** Wrong user, password or database; an account that is locked or expired. */
const refused: ReadonlySet<number | undefined> = new Set([1044, 1045, 1049, 1251, 1396, 1698, 1820, 1862, 3118]);

/** The layers of an error that a library may have wrapped, outermost first. User code may throw anything. */
function layersOf(error: unknown): Layer[] {
  const layers: Layer[] = [];
  try {
    for (let at = error; typeof at === "object" && at !== null && layers.length < 5; ) {
      const layer = at as Layer;
      layers.push(layer);
      at = layer.cause ?? layer.driverError ?? layer.meta?.driverAdapterError;
    }
  } catch {
    // Getters may throw. Such an object did not come from a database.
  }
  return layers;
}

/** MySQL's number of a database error, even if a library has wrapped it. Undefined if it has none. */
export function mysqlNumber(error: unknown): number | undefined {
  for (const layer of layersOf(error)) {
    try {
      const { errno, code, originalCode } = layer;
      // Node's own errors have negative numbers.
      if (typeof errno === "number" && errno >= 1000) return errno;
      if (typeof code === "number" && code >= 1000) return code;
      if (typeof originalCode === "string" && /^\d{4}$/.test(originalCode)) return Number(originalCode);
    } catch {
      return undefined;
    }
  }
  return undefined;
}

/** Whether a transaction failed because of concurrent ones. */
export function isMysqlConflict(error: unknown): boolean {
  return conflicts.has(mysqlNumber(error));
}

/** Whether a statement with NOWAIT met a lock: MySQL and TiDB have a number of its own, MariaDB that of a timeout. */
export function isLocked(error: unknown): boolean {
  return nowait.has(mysqlNumber(error));
}

/** Whether an error says that a connection to the database was lost, or that it takes no writes. */
export function isMysqlLost(error: unknown): boolean {
  const number = mysqlNumber(error);
  if (number !== undefined) return lost.has(number);
  return layersOf(error).some((layer) => {
    try {
      const { code, fatal } = layer;
      const { message } = layer as { readonly message?: unknown };
      if (lostCodes.test(String(code)) || lostTexts.test(String(message))) return true;
      return fatal === true && socketCodes.test(String(code));
    } catch {
      return false;
    }
  });
}

/** Whether authentication failed, or the database does not exist. */
export function isMysqlRefused(error: unknown): boolean {
  return refused.has(mysqlNumber(error));
}

/** Whether a table is missing. */
export function isTableMissing(error: unknown): boolean {
  return mysqlNumber(error) === noSuchTable;
}

/** Whether the user has ended the pool, which mysql2 tells by a text only. */
export function isPoolClosed(error: unknown): boolean {
  return error instanceof Error && error.message === "Pool is closed.";
}
