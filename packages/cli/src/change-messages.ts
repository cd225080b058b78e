import type { Admin, Changed, DryRun, Operator, Selection } from "postbox/admin";
import type { Call } from "./call.js";
import { type ConfirmFlags, confirmed } from "./confirm.js";
import { type ExitCode, exitCodes } from "./exit-codes.js";
import { type OperatorFlags, operatorOf } from "./operator.js";
import { progressOf } from "./progress.js";
import { boxOf, type SelectionFlags, selectionOf } from "./selection.js";
import { count } from "./table.js";

/** The flags of every change of messages. */
export type ChangeFlags = SelectionFlags &
  ConfirmFlags &
  OperatorFlags & { readonly all?: boolean; readonly limit?: number };

/** How a change is done and told. */
export interface MessageChange {
  readonly action: "retry" | "discard" | "replay";
  /** Such as "would be sent again". */
  readonly would: string;
  /** Such as "sent again". */
  readonly done: string;
  readonly question: string;
  dryRun(admin: Admin, selection: Selection, limit: { readonly limit?: number }): Promise<DryRun>;
  apply(
    admin: Admin,
    selection: Selection,
    options: Operator & Pick<Parameters<Admin["retry"]>[1], "confirm" | "signal" | "onBatch">,
  ): Promise<Changed>;
}

/**
 * Changes what the flags select: a dry run first, then the question, then the change, of exactly what the dry run has
 * counted.
 */
export async function changeMessages(call: Call<ChangeFlags>, change: MessageChange): Promise<ExitCode> {
  const { flags, terminal } = call;
  const selection: Selection = { ...boxOf(flags), ...selectionOf(flags) };
  const { admin } = (await call.database()).store;
  const { limit } = flags;
  const dry = await change.dryRun(admin, selection, limit === undefined ? {} : { limit });
  const what = `${count(dry.count)} ${dry.count === 1 ? "message" : "messages"}`;
  const more = dry.more ? " There are more: raise --limit, or repeat." : "";
  const tell = (changed: number, result: string) =>
    flags.json
      ? terminal.json({ action: change.action, matched: dry.count, more: dry.more, changed })
      : terminal.out(`${result}${more}`);
  if (dry.count === 0 || flags.dryRun) {
    tell(0, `${what} ${change.would}.`);
    return exitCodes.done;
  }
  terminal.note(`${what} ${change.would}.`);
  if (!(await confirmed(terminal, flags, change.question))) {
    tell(0, "Nothing was changed.");
    return exitCodes.declined;
  }
  const { signal } = call;
  const onBatch = progressOf(terminal, dry.count);
  const { count: changed } = await change.apply(admin, selection, {
    ...operatorOf(flags),
    confirm: dry.confirm,
    signal,
    onBatch,
  });
  tell(changed, `${count(changed)} of ${what} ${change.done}.`);
  return signal.aborted && changed < dry.count ? exitCodes.interrupted : exitCodes.done;
}
