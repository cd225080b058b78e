import type { StoredMessage } from "postbox/admin";
import type { CommandDefinition } from "../call.js";
import { duration } from "../duration.js";
import { type BoxFlags, boxOf, withBox } from "../selection.js";
import { type Column, count, table } from "../table.js";

/** A held key, and the messages that wait behind it. */
interface HeldKey {
  readonly key: string;
  readonly waiting: number;
  /** When it continues. Absent if an operator has to release it. */
  readonly dueAt?: Date;
  readonly attempts: number;
  readonly lastError?: string;
}

const pageSize = 1000;
/** More keys than anybody reads; then the command says so. */
const mostMessages = 10_000;

/** Lists held keys. */
export const held: CommandDefinition<BoxFlags> = {
  name: "held",
  summary: "List the keys whose messages wait behind a failed one",
  description:
    "Lists the keys whose messages wait behind a failed or parked one, with the number that wait. `postbox release` " +
    "lets a key continue.",
  flags: withBox,
  examples: ["postbox held", "postbox held --consumer billing --json"],
  async run(call) {
    const { flags, terminal } = call;
    const { admin } = (await call.database()).store;
    const waiting: StoredMessage[] = [];
    let after: string | undefined;
    do {
      const page = await admin.list({ ...boxOf(flags), status: "waiting", limit: pageSize, after });
      waiting.push(...page.messages);
      after = page.next;
    } while (after !== undefined && waiting.length < mostMessages);
    const keys = heldKeys(waiting);
    const more = after !== undefined;
    if (flags.json) terminal.json({ keys, more });
    else if (keys.length === 0) terminal.out("No key is held by a waiting message.");
    else for (const line of table(columns, keys, terminal.columns)) terminal.out(line);
    if (more) terminal.note(`Only the newest ${count(waiting.length)} waiting messages were read.`);
    return undefined;
  },
};

const columns: readonly Column<HeldKey>[] = [
  { title: "KEY", of: ({ key }) => key },
  { title: "WAITING", of: ({ waiting }) => count(waiting), right: true },
  { title: "CONTINUES", of: ({ dueAt }) => (dueAt === undefined ? "when released" : continues(dueAt)) },
  { title: "TRIES", of: ({ attempts }) => String(attempts), right: true },
  { title: "LAST ERROR", of: ({ lastError = "" }) => lastError },
];

function continues(dueAt: Date): string {
  const inMs = dueAt.getTime() - Date.now();
  return inMs <= 0 ? "now" : `in ${duration(inMs)}`;
}

/** Groups messages by their key, those with the most attempts telling of the failure. */
function heldKeys(waiting: readonly StoredMessage[]): HeldKey[] {
  const keys = new Map<string, HeldKey>();
  for (const { key, attempts, lastError, dueAt } of waiting) {
    if (key === undefined) continue;
    const known = keys.get(key);
    const failed = known === undefined || attempts > known.attempts;
    keys.set(key, {
      key,
      waiting: (known?.waiting ?? 0) + 1,
      attempts: failed ? attempts : known.attempts,
      ...given("lastError", failed ? lastError : known.lastError),
      ...given("dueAt", dueAt ?? known?.dueAt),
    });
  }
  return [...keys.values()].sort((one, other) => other.waiting - one.waiting);
}

function given<Name extends string, T>(name: Name, value: T | undefined): { readonly [K in Name]?: T } {
  return (value === undefined ? {} : { [name]: value }) as { readonly [K in Name]?: T };
}
