import { Option } from "commander";
import type { RetrySelection } from "postbox/admin";
import type { CommandDefinition } from "../call.js";
import { type ChangeFlags, changeMessages } from "../change-messages.js";
import { withConfirm } from "../confirm.js";
import { withOperator } from "../operator.js";
import { readWhole, withSelection } from "../selection.js";

type Flags = ChangeFlags & { readonly status?: RetrySelection["status"] };

/** Sends parked or waiting messages again. */
export const retry: CommandDefinition<Flags> = {
  name: "retry",
  summary: "Send parked messages again",
  description:
    "Sends parked messages again, with the same ids and their attempts counted anew. With --status waiting, messages " +
    "that wait after a failure are sent now. With --status pending, a relay loses those that it has had in flight " +
    "for too long.",
  flags: (command) =>
    withOperator(withConfirm(withSelection(command)))
      .addOption(
        new Option("--status <status>", "which messages").choices(["parked", "waiting", "pending"]).default("parked"),
      )
      .option("--all", "all messages of that status")
      .option("--limit <number>", "at most this many; defaults to 10,000", readWhole),
  examples: [
    "postbox retry --id 0193a1c2-7d4e-7b1a-9c1f-3a5e8d7b2f10 --yes",
    "postbox retry --topic shop.orders.v1 --dry-run",
    'postbox retry --all --consumer billing --reason "the exchange is back"',
  ],
  run: (call) =>
    changeMessages(call, {
      action: "retry",
      would: "would be sent again",
      done: "will be sent again",
      question: "Send them again?",
      dryRun: (admin, selection, limit) => admin.dryRun("retry", { ...selection, status: call.flags.status }, limit),
      apply: (admin, selection, options) => admin.retry({ ...selection, status: call.flags.status }, options),
    }),
};
