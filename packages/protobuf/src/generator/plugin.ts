import { readFileSync } from "node:fs";
import { createEcmaScriptPlugin, type Plugin } from "@bufbuild/protoplugin";
import { createFaults } from "./faults.js";
import { printFile } from "./print-file.js";
import { checkTypes, eventsOf } from "./read-events.js";

const manifest = new URL("../../package.json", import.meta.url);

/** Options of protoc-gen-es that do not affect this generator's code. */
const ofMessages = ["json_types", "valid_types", "erasable_syntax"];

/**
 * The code generator. For each file with events it writes `<file>_postbox` next to the output of protoc-gen-es. It
 * accepts all options of protoc-gen-es, so that both plugins can get the same ones.
 */
export function createPlugin(): Plugin {
  return createEcmaScriptPlugin({
    name: "protoc-gen-postbox",
    version: `v${JSON.parse(readFileSync(manifest, "utf8")).version}`,
    parseOptions(options) {
      const unknown = options.find(({ key }) => !ofMessages.includes(key));
      if (unknown !== undefined) throw new Error(`'${unknown.key}' is unknown`);
      return {};
    },
    generateTs(schema) {
      const faults = createFaults();
      const files = schema.files.map((file) => ({ file, events: eventsOf(file, faults) }));
      const all = files.flatMap(({ events }) => events);
      checkTypes(all, faults);
      faults.check();
      for (const { file, events } of files) {
        const generated = schema.generateFile(`${file.name}_postbox.ts`);
        if (events.length > 0) printFile(generated, file, events);
      }
    },
  });
}
