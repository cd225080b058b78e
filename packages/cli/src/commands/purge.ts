import { Option } from "commander";
import type { CommandDefinition } from "../call.js";
import { type ConfirmFlags, confirmed } from "../confirm.js";
import { duration, readDuration } from "../duration.js";
import { exitCodes } from "../exit-codes.js";
import { type BoxFlags, boxOf, withBox } from "../selection.js";
import { count } from "../table.js";

type Flags = BoxFlags & ConfirmFlags & { readonly olderThan: number };

/** Removes messages that were done long ago. */
export const purge: CommandDefinition<Flags> = {
  name: "purge",
  summary: "Remove messages that were sent, or handled, long ago",
  description:
    "Removes sent messages that were kept, or with --consumer the ids that an inbox remembers, once they are older " +
    "than --older-than. Nothing else is touched. Only one purge runs at a time.",
  flags: (command) =>
    withBox(command)
      .option("--yes", "do not ask; needed where nobody can answer")
      .addOption(
        new Option("--older-than <duration>", "such as 7d; an inbox must remember longer than its broker redelivers")
          .argParser(readDuration)
          .makeOptionMandatory(),
      ),
  examples: ["postbox purge --older-than 30d --yes", "postbox purge --consumer billing --older-than 90d"],
  async run(call) {
    const { flags, terminal } = call;
    const { store } = await call.database();
    const box = boxOf(flags);
    const name = box.box ?? "outbox";
    const question = `Remove what ${name} has kept for more than ${duration(flags.olderThan)}?`;
    if (!(await confirmed(terminal, flags, question))) return exitCodes.declined;
    const purged = await store.purge({ ...box, retentionMs: flags.olderThan, signal: call.signal });
    if (flags.json) terminal.json({ box: name, ...purged });
    else if (purged.busy) terminal.out("Another process is purging; nothing was done.");
    else terminal.out(`${count(purged.removed)} removed.`);
    return call.signal.aborted ? exitCodes.interrupted : exitCodes.done;
  },
};
