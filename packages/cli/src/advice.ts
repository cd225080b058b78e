/** The command that helps with a problem, by the problem's code. */
const commands: Readonly<Record<string, string>> = {
  "schema-missing": "postbox migrate",
  "schema-outdated": "postbox migrate",
  "lanes-unowned": "postbox relay",
  paused: "postbox resume",
  parked: "postbox parked, then postbox retry or postbox discard",
  "held-for-good": "postbox held, then postbox release",
  "retried-too-long": "postbox failed",
  "unsent-too-old": "postbox stuck",
};

/** The text of a problem or an error, with the command that helps. */
export function withCommand(code: string, text: string): string {
  const command = commands[code];
  return command === undefined ? text : `${text} (try: ${command})`;
}
