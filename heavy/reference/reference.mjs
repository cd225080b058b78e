// Makes the API reference from the doc comments of all packages: pages in docs/reference, or with --json a list of all
// exports, for the check that each is documented. It reads the built types, so run `npm run build` first.
import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { Application, ReflectionKind } from "typedoc";

const root = join(import.meta.dirname, "..", "..");
const packages = ["postbox", "testkit", "protobuf"].map((name) => join(root, "packages", name));

/** The built types of each entry point, and the name by which users import it. */
const entryPoints = new Map(
  packages.flatMap((folder) => {
    const { name, exports } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return Object.entries(exports).map(([path, { types }]) => [join(folder, types), join(name, path)]);
  }),
);

const app = await Application.bootstrap({
  entryPoints: [...entryPoints.keys()],
  tsconfig: join(import.meta.dirname, "tsconfig.json"),
  // Types come from `dist`, whose lines no reader should be sent to.
  disableSources: true,
  excludeExternals: true,
  skipErrorChecking: true,
  name: "Postbox",
  readme: join(import.meta.dirname, "introduction.md"),
  navigation: { includeGroups: true },
  sort: ["kind", "alphabetical"],
  logLevel: "Warn",
  treatWarningsAsErrors: true,
});
const project = await app.convert();
if (project === undefined) process.exit(1);
app.validate(project);
for (const [file, name] of entryPoints) moduleOf(file).name = name;

if (process.argv.includes("--json")) {
  console.log(JSON.stringify((project.children ?? []).flatMap(exportsOf)));
} else {
  await app.generateDocs(project, join(root, "docs", "reference"));
}
// A link that leads nowhere is a warning, and counts as an error here.
if (app.logger.hasErrors() || app.logger.hasWarnings()) process.exitCode = 1;

/** TypeDoc names a module after its file, without its ending and without `index`. */
function moduleOf(file) {
  const path = relative(join(root, "packages"), file).replace(/(\/index)?\.d\.ts$/, "");
  const found = project.children?.find(({ name }) => name === path);
  if (found === undefined) throw new Error(`TypeDoc made no module of ${file}`);
  return found;
}

/** A name that another entry point has, too, is described there. */
function exportsOf(module) {
  return (module.children ?? [])
    .filter((child) => !child.isReference())
    .map((child) => {
      const comments = [child, ...(child.signatures ?? [])].map(({ comment }) => comment).filter(Boolean);
      return {
        entry: module.name,
        name: child.name,
        kind: ReflectionKind[child.kind],
        summary: comments.map(({ summary }) => textOf(summary)).join("\n"),
        examples: comments
          .flatMap(({ blockTags }) => blockTags.filter(({ tag }) => tag === "@example"))
          .map(({ content }) => textOf(content)),
      };
    });
}

function textOf(parts) {
  return parts.map(({ text }) => text).join("");
}
