import { Option } from "commander";
import type { Catalog } from "postbox/catalog";
import type { CommandDefinition } from "../call.js";
import { exitCodes } from "../exit-codes.js";
import { wrongUse } from "../failure.js";
import { loadModule } from "../load-module.js";
import { plainJson } from "../plain-text.js";
import { table } from "../table.js";

interface Flags {
  readonly format: "asyncapi" | "json-schema" | "list";
  readonly name: string;
  readonly title: string;
  readonly apiVersion: string;
}

const formats = ["asyncapi", "json-schema", "list"] as const satisfies Flags["format"][];

/** Writes the documents of a catalog. */
export const events: CommandDefinition<Flags> = {
  name: "events",
  summary: "Write the AsyncAPI or JSON Schema document of your events",
  description:
    "Loads a module that exports a catalog, as defineCatalog returns it, and writes its document as JSON. The same " +
    "events give the same document, so it can be committed and compared.",
  args: [["<file>", "a module in TypeScript or JavaScript"]],
  connects: "nothing",
  flags: (command) =>
    command
      .addOption(new Option("--format <format>", "what to write").choices(formats).default("asyncapi"))
      .option("--name <export>", "the export; otherwise the default export is tried, too", "catalog")
      .option("--title <text>", "the title of the AsyncAPI document", "Events")
      .option("--api-version <version>", "the version of the AsyncAPI document", "1.0.0"),
  examples: [
    'postbox events src/catalog.ts --title "Shop" --api-version 2.1.0 > asyncapi.json',
    "postbox events src/catalog.ts --format list",
  ],
  async run({ flags, terminal, cwd }, file = "") {
    const { format, title, apiVersion: version } = flags;
    const catalog = catalogIn(await loadModule(cwd, file, "module"), flags.name, file);
    if (format === "list") {
      const columns = [
        { title: "TYPE", of: ({ type }: Event) => type },
        { title: "TOPIC", of: ({ topic }: Event) => topic },
        { title: "VERSION", of: ({ version: own = "-" }: Event) => own },
      ];
      for (const line of table(columns, catalog.events, terminal.columns)) terminal.out(line);
    } else if (format === "json-schema") terminal.out(plainJson(catalog.jsonSchema(), 2));
    else terminal.out(plainJson(catalog.asyncApi({ info: { title, version } }), 2));
    return exitCodes.done;
  },
};

type Event = Catalog["events"][number];

function catalogIn(module: Readonly<Record<string, unknown>>, name: string, file: string): Catalog {
  for (const found of [module[name], module.default]) {
    if (typeof (found as Partial<Catalog> | undefined)?.asyncApi === "function") return found as Catalog;
  }
  throw wrongUse(`${file} exports no catalog '${name}'; export what defineCatalog([…]) returns`);
}
