import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect } from "vitest";

export const root: string = join(import.meta.dirname, "..");
const compiler = join(root, "node_modules", "typescript", "bin", "tsc");

export function pageText(page: string): string {
  return readFileSync(join(root, page), "utf8");
}

/** The snippets of a page whose first line names a file. */
export function snippets(page: string): Record<string, string> {
  const blocks = pageText(page).matchAll(/```ts\n\/\/ (\S+\.ts)\n(.*?)```/gs);
  return Object.fromEntries([...blocks].map(([, name, code]) => [name, code]));
}

/** The SQL statements of a page, by the first word of the comment before each. */
export function statements(page: string): Record<string, string> {
  const blocks = [...pageText(page).matchAll(/```sql\n(.*?)```/gs)].map(([, code]) => code).join("");
  const parts = blocks.split(/^-- (\w+): .*$/m).slice(1);
  return Object.fromEntries(parts.flatMap((name, at) => (at % 2 === 0 ? [[name, parts[at + 1] ?? ""]] : [])));
}

/** The cells of the table that begins with this header. */
export function tableOf(page: string, head: string): string[][] {
  const lines = pageText(page).split("\n");
  const from = lines.findIndex((line) => line.startsWith(`| ${head} |`)) + 2;
  const rest = lines.slice(from);
  const rows = rest.slice(
    0,
    rest.findIndex((line) => !line.startsWith("|")),
  );
  return rows.map((row) => row.split(" | ").map((cell) => cell.replace(/^\| | \|$/g, "")));
}

/** The texts between backticks in a cell. */
export function named(cell = ""): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name as string);
}

/** The options of a factory, taken from its error text for an unknown option, which lists them. */
export function known(make: () => unknown): string[] {
  try {
    make();
  } catch (error) {
    return listedIn(error as Error);
  }
  return [];
}

export function listedIn({ message }: Error): string[] {
  return /known are (.*)/.exec(message)?.[1]?.split(", ") ?? [];
}

/** Writes the files into a folder and expects them to compile without errors. */
export async function compile(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [file, code] of Object.entries(files)) writeFileSync(join(folder, file), code);
  const project = { extends: join(root, "checks/compile-errors/tsconfig.json"), include: ["*.ts"] };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(project));
  await promisify(execFile)(process.execPath, [compiler, "-p", folder]).catch(({ stdout }) => expect(stdout).toBe(""));
}

export async function until(condition: () => boolean | Promise<boolean>, what = "it"): Promise<void> {
  const deadline = Date.now() + 5_000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`${what} did not happen within 5 s`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
