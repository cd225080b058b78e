import type { CommandDefinition } from "../call.js";
import { type ConfirmFlags, confirmed, withConfirm } from "../confirm.js";
import { exitCodes } from "../exit-codes.js";
import { type OperatorFlags, operatorOf, withOperator } from "../operator.js";
import { plain } from "../plain-text.js";
import { type BoxFlags, boxOf, withBox } from "../selection.js";

/** Lets a held key continue. */
export const release: CommandDefinition<BoxFlags & ConfirmFlags & OperatorFlags> = {
  name: "release",
  summary: "Let a held key continue now",
  description:
    "Lets a held key continue now, whether it waits for a delay or for a decision about its parked message. That " +
    "message stays parked.",
  args: [["<key>", "the held key, as `postbox held` lists it"]],
  flags: (command) => withOperator(withConfirm(withBox(command))),
  examples: ['postbox release order-17 --reason "the parked order was corrected"'],
  async run(call, key = "") {
    const { flags, terminal } = call;
    const { admin } = (await call.database()).store;
    const { messages } = await admin.list({ ...boxOf(flags), key, status: "waiting", limit: 1000 });
    const waiting = `${messages.length === 1000 ? "at least 1,000" : messages.length} of its messages wait`;
    if (flags.dryRun) {
      if (flags.json) terminal.json({ action: "release", key, waiting: messages.length, released: false });
      else terminal.out(`The key ${plain(key)} would continue; ${waiting}.`);
      return exitCodes.done;
    }
    if (!(await confirmed(terminal, flags, `Let the key ${plain(key)} continue? ${waiting}.`)))
      return exitCodes.declined;
    const released = await admin.release(key, { ...operatorOf(flags), ...boxOf(flags) });
    if (flags.json) terminal.json({ action: "release", key, waiting: messages.length, released });
    else terminal.out(released ? `The key ${plain(key)} continues.` : `The key ${plain(key)} is not held.`);
    return released ? exitCodes.done : exitCodes.notFound;
  },
};
