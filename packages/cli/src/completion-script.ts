import type { Command } from "commander";

export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

interface Completed {
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly { readonly name: string; readonly about: string; readonly values: readonly string[] }[];
}

/** The script of a shell that completes the commands of a program, their flags, and the values of flags. */
export function completionScript(shell: Shell, program: Command): string {
  const commands = program.commands.map(completed);
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](commands);
}

function completed(command: Command): Completed {
  const flags = command.options.map(({ long, description, argChoices = [] }) => ({
    name: long ?? "",
    about: description,
    values: argChoices,
  }));
  return { name: command.name(), summary: command.summary(), flags };
}

const names = (commands: readonly Completed[]) => commands.map(({ name }) => name).join(" ");
const flagNames = ({ flags }: Completed) => flags.map(({ name }) => name).join(" ");

function bashScript(commands: readonly Completed[]): string {
  const values = commands.flatMap(({ name, flags }) =>
    flags
      .filter((flag) => flag.values.length > 0)
      .map((flag) => `    "${name} ${flag.name}") words="${flag.values.join(" ")}" ;;`),
  );
  const own = commands.map((command) => `      ${command.name}) words="${flagNames(command)}" ;;`);
  return `# bash completion for postbox
_postbox() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}"
  local command="\${COMP_WORDS[1]}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "${names(commands)}" -- "$current"))
    return
  fi
  case "$command $previous" in
${values.join("\n")}
  esac
  if [ -z "$words" ]; then
    case "$command" in
${own.join("\n")}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _postbox postbox`;
}

/** Text inside of single quotes in zsh's descriptions. */
const quoted = (text: string) => text.replace(/'/g, "'\\''").replace(/[[\]:]/g, "\\$&");

function zshScript(commands: readonly Completed[]): string {
  const cases = commands.map(({ name, flags }) => {
    const lines = flags.map(({ name: flag, about, values }) => {
      const value = values.length > 0 ? `:value:(${values.join(" ")})` : "";
      return `        '${flag}[${quoted(about)}]${value}'`;
    });
    return `      ${name})\n        _arguments \\\n${lines.join(" \\\n")}\n        ;;`;
  });
  const list = commands.map(({ name, summary }) => `    '${name}:${quoted(summary)}'`);
  return `#compdef postbox
_postbox() {
  local -a commands
  commands=(
${list.join("\n")}
  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
  else
    case "$words[2]" in
${cases.join("\n")}
    esac
  fi
}
compdef _postbox postbox`;
}

function fishScript(commands: readonly Completed[]): string {
  const text = (about: string) => `'${about.replace(/\\/g, "\\\\").replace(/'/g, "\\'")}'`;
  const lines = commands.flatMap(({ name, summary, flags }) => [
    `complete -c postbox -f -n __fish_use_subcommand -a ${name} -d ${text(summary)}`,
    ...flags.map(({ name: flag, about, values }) => {
      const given = values.length > 0 ? ` -x -a '${values.join(" ")}'` : "";
      const where = `-n '__fish_seen_subcommand_from ${name}'`;
      return `complete -c postbox ${where} -l ${flag.slice(2)} -d ${text(about)}${given}`;
    }),
  ]);
  return `# fish completion for postbox\n${lines.join("\n")}`;
}
