import { Option } from "commander";
import type { DiscardSelection } from "postbox/admin";
import type { CommandDefinition } from "../call.js";
import { type ChangeFlags, changeMessages } from "../change-messages.js";
import { withConfirm } from "../confirm.js";
import { withOperator } from "../operator.js";
import { readWhole, withSelection } from "../selection.js";

type Flags = ChangeFlags & { readonly status?: DiscardSelection["status"] };

/** Removes messages for good. */
export const discard: CommandDefinition<Flags> = {
  name: "discard",
  summary: "Remove messages for good",
  description: "Removes messages for good. Their ids stay in the audit. A key that waited for one of them continues.",
  flags: (command) =>
    withOperator(withConfirm(withSelection(command)))
      .addOption(
        new Option("--status <status>", "which messages")
          .choices(["parked", "waiting", "pending", "scheduled"])
          .default("parked"),
      )
      .option("--all", "all messages of that status")
      .option("--limit <number>", "at most this many; defaults to 10,000", readWhole),
  examples: [
    "postbox discard --id 0193a1c2-7d4e-7b1a-9c1f-3a5e8d7b2f10 --yes",
    'postbox discard --type shop.orders.v1.OrderPlaced --created-before 2026-01-01 --reason "obsolete"',
  ],
  run: (call) =>
    changeMessages(call, {
      action: "discard",
      would: "would be removed for good",
      done: "were removed",
      question: "Remove them for good?",
      dryRun: (admin, selection, limit) => admin.dryRun("discard", { ...selection, status: call.flags.status }, limit),
      apply: (admin, selection, options) => admin.discard({ ...selection, status: call.flags.status }, options),
    }),
};
