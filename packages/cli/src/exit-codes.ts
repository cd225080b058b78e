/** The exit codes of every command. They are stable. */
export const exitCodes = {
  done: 0,
  /** Something failed that has no code of its own. */
  failed: 1,
  /** A wrong flag, argument, URL, variable or configuration. Nothing was done. */
  usage: 2,
  /** The database or the broker cannot be reached, or does not answer. */
  unreachable: 3,
  /** The database or the broker refuses the user, the password or the database. */
  refused: 4,
  /** The tables are missing, older or newer than this version needs, or the server is too old. */
  schema: 5,
  /** There is no such message, or the key is not held. */
  notFound: 6,
  /** `migrate --check`, `doctor` or `status --check` found something that needs attention. */
  attention: 7,
  /** The change was not confirmed. */
  declined: 8,
  /** Ended by Ctrl-C or SIGTERM before it was done. */
  interrupted: 130,
} as const;

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];
