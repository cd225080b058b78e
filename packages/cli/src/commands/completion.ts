import type { CommandDefinition } from "../call.js";
import { completionScript, type Shell, shells } from "../completion-script.js";
import { exitCodes } from "../exit-codes.js";
import { wrongUse } from "../failure.js";

/** Writes a script that completes commands and flags. */
export const completion: CommandDefinition<object> = {
  name: "completion",
  summary: "Write the completion script of a shell",
  connects: "nothing",
  args: [["<shell>", shells.join(", ")]],
  examples: [
    "postbox completion bash > /etc/bash_completion.d/postbox",
    'postbox completion zsh > "$' + '{fpath[1]}/_postbox"',
    "postbox completion fish > ~/.config/fish/completions/postbox.fish",
  ],
  async run(call, shell = "") {
    if (!shells.includes(shell as Shell))
      throw wrongUse(`there is no completion for '${shell}'; known are ${shells.join(", ")}`);
    // Imported here, because the program contains this command.
    const { programOf } = await import("../program.js");
    const around = { terminal: call.terminal, env: {}, cwd: "." };
    call.terminal.out(
      completionScript(
        shell as Shell,
        programOf(around, "", () => {}),
      ),
    );
    return exitCodes.done;
  },
};
