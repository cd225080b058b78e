import { readFileSync } from "node:fs";
import { createEcmaScriptPlugin, type Plugin } from "@bufbuild/protoplugin";
import { createFaults } from "./faults.js";
import { printFile } from "./print-file.js";
import { checkTypes, eventsOf } from "./read-events.js";

const manifest = new URL("../../package.json", import.meta.url);

/** Options that only protoc-gen-es knows. They change its code, not ours. */
const ofMessages = ["json_types", "valid_types", "erasable_syntax"];

/**
 * The code generator: for each file with events, `<file>_postbox` beside what protoc-gen-es makes of it. It takes the
 * options of that one, all of them, so that both can be given the same.
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
