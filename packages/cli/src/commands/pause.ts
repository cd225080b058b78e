import type { CommandDefinition } from "../call.js";
import { type ConfirmFlags, confirmed, withConfirm } from "../confirm.js";
import { exitCodes } from "../exit-codes.js";
import { type OperatorFlags, operatorOf, withOperator } from "../operator.js";
import { type BoxFlags, boxOf, withBox } from "../selection.js";

type Flags = BoxFlags & ConfirmFlags & OperatorFlags;

/** Stops the relays of a box. */
export const pause: CommandDefinition<Flags> = {
  name: "pause",
  summary: "Let relays finish what is in flight, and send nothing more",
  description:
    "Lets all relays of a box finish what is in flight and give their lanes back, within a third of their lease. " +
    "Publishers continue; their messages wait.",
  flags: (command) => withOperator(withConfirm(withBox(command))),
  examples: ['postbox pause --reason "the broker moves" --yes'],
  run: setPaused("pause", "Pause the relays of"),
};

/** Lets the relays of a box continue. */
export const resume: CommandDefinition<Flags> = {
  name: "resume",
  summary: "Let relays send again",
  flags: (command) => withOperator(withConfirm(withBox(command))),
  examples: ["postbox resume --yes"],
  run: setPaused("resume", "Resume the relays of"),
};

function setPaused(action: "pause" | "resume", question: string): CommandDefinition<Flags>["run"] {
  return async (call) => {
    const { flags, terminal } = call;
    const { admin } = (await call.database()).store;
    const box = boxOf(flags);
    const name = box.box ?? "outbox";
    const { paused } = await admin.stats(box);
    const changes = paused !== (action === "pause");
    const tell = (text: string) => {
      if (flags.json) terminal.json({ action, box: name, changed: changes && !flags.dryRun });
      else terminal.out(text);
      return exitCodes.done;
    };
    if (!changes) return tell(`The box ${name} is ${paused ? "paused" : "running"} already.`);
    if (flags.dryRun) return tell(`The box ${name} would be ${action}d.`);
    if (!(await confirmed(terminal, flags, `${question} ${name}?`))) return exitCodes.declined;
    await admin[action]({ ...operatorOf(flags), ...box });
    return tell(`The box ${name} is ${action}d. Relays notice it within a third of their lease.`);
  };
}
