import type { CommandDefinition } from "../call.js";
import { type ChangeFlags, changeMessages } from "../change-messages.js";
import { withConfirm } from "../confirm.js";
import { withOperator } from "../operator.js";
import { readWhole, withSelection } from "../selection.js";

type Flags = ChangeFlags & { readonly perSecond?: number };

/** Sends messages that are done once more. */
export const replay: CommandDefinition<Flags> = {
  name: "replay",
  summary: "Send messages again that were sent and kept",
  description:
    "Sends messages of the outbox again that were sent and kept (onSent: keep), in their order and with the same " +
    "ids. Consumers with an inbox skip those that they have handled.",
  flags: (command) =>
    withOperator(withConfirm(withSelection(command)))
      .option("--all", "everything that was kept")
      .option("--limit <number>", "at most this many; defaults to 10,000", readWhole)
      .option("--per-second <number>", "how many per second; defaults to 1,000", readWhole),
  examples: [
    "postbox replay --created-from 2026-01-31T08:00:00Z --created-before 2026-01-31T09:00:00Z --per-second 200",
  ],
  run: (call) =>
    changeMessages(call, {
      action: "replay",
      would: "would be sent again",
      done: "will be sent again",
      question: "Send them again?",
      dryRun: (admin, selection, limit) => admin.dryRun("replay", selection, limit),
      apply: (admin, selection, options) => {
        const { perSecond } = call.flags;
        return admin.replay(selection, { ...options, ...(perSecond !== undefined && { perSecond }) });
      },
    }),
};
